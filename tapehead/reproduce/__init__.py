"""The whole paper again: what to train at each scale, how long it takes here, and the report of it."""
