"""Populations of the paper's LSTM baseline: one training step of S networks, without autograd."""
