"""Figures of runs and records. Importing any module in here imports matplotlib."""
