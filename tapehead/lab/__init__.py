"""The laboratory: what is claimed of a recipe, confirmed on held-out seeds, and kept as a record."""
