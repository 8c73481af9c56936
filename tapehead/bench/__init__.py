"""How fast is it? Measured in one run, beside a known neighbour, after the gate."""
