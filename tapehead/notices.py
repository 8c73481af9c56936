"""Sentences for the user from inside the library, such as why the first call takes half a minute.

They go to the listener of the running call, if there is one: the command line prints them, `train` passes them to its
observer. Otherwise they go to the logger `tapehead`, as warnings, which Python prints on standard error unless logging
is set up in another way: `logging.getLogger("tapehead").setLevel(logging.ERROR)` silences them.
"""

import contextlib
import contextvars
from collections.abc import Callable, Iterator

Listener = Callable[[str], None]

_listener: contextvars.ContextVar[Listener | None] = contextvars.ContextVar("listener", default=None)


def tell(sentence: str) -> None:
    (_listener.get() or _warn)(sentence)


@contextlib.contextmanager
def heard_by(listener: Listener | None) -> Iterator[None]:
    """Inside, sentences go to `listener`; with None to the one outside, or else to the logger, for information only."""
    token = _listener.set(listener or _listener.get() or _inform)
    try:
        yield
    finally:
        _listener.reset(token)


def _warn(sentence: str) -> None:
    import logging  # not needed by a command that only prints its help

    logging.getLogger("tapehead").warning("tapehead: %s", sentence)


def _inform(sentence: str) -> None:
    import logging

    logging.getLogger("tapehead").info("tapehead: %s", sentence)
