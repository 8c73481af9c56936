"""Experiments: what is trained, the population, restarts, the loop, run folders, and `train`, which does all of it."""
