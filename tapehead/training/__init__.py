"""Training runs: configuration, optimisers, the loop, checkpoints, run folders."""
