"""Costs, and scores at sizes inside and beyond the training range."""
