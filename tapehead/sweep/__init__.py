"""Sweeps: many runs as a list of immutable jobs, carried out by any number of workers and drivers, on one machine or
several."""
