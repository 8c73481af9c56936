"""What can go wrong with compiled kernels. Imports nothing, so that the command line can name it cheaply."""


class CompilationError(RuntimeError):
    """A kernel could not be compiled; the message is one sentence, or the compiler's log."""
