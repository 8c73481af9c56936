"""The scan of a Differentiable Neural Computer over whole sequences: one contract, one truth."""
