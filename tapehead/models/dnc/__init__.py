"""The Differentiable Neural Computer (not in the NTM paper): its options, its parameters, the model, one step of it."""
