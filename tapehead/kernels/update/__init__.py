"""One optimiser step for a whole population: finite check, clipping, optimiser, average of the weights."""
