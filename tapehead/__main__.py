"""`python -m tapehead` is `tapehead`."""

from tapehead.cli import main

main()
