"""The same mathematics as `tapehead.equations`, a whole sequence at a time."""
