"""The laboratory: what is claimed of a recipe, confirmed on seeds that nobody has looked at, and kept as a record."""
