"""What numba compiles for the DNC, beside the parts of the NTM's scan that it takes from `ntm_scan/cpu/compiled`.

Those know a plan by the names of its fields, so that any plan with the same names will do; `Plan` here has them."""
