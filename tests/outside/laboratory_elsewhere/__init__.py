"""A laboratory that is not part of tapehead: everything in it is named as module:Class, and registers nothing."""
