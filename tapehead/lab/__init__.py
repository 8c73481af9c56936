"""The laboratory: what is asked of a recipe, confirmed on held-out seeds, and kept as a record."""
