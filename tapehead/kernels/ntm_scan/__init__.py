"""The scan of a Neural Turing Machine over whole sequences: one contract, one truth, several backends."""
