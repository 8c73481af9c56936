"""Neural Turing Machines."""
