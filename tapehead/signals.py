"""The signals that ask a program to stop: which they are, and how they are handled for a while."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOPPING = tuple(signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Windows does not have the last."""

Handler = Callable[[int, FrameType | None], None]


@contextmanager
def handled_by(handler: Handler) -> Iterator[None]:
    """While inside, the signals that stop a program call `handler`.

    Ignored signals stay ignored: that is how `nohup` and the background jobs of a shell protect a run. Outside the main
    thread nothing changes, because Python handles signals in the main thread alone.
    """
    before = {}
    try:
        for number in _ours():
            before[number] = signal.signal(number, handler)
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


def leave_to_the_system() -> None:
    """From now on these signals end the process without Python: a process that is ending anyway prints no traceback."""
    for number in _ours():
        signal.signal(number, signal.SIG_DFL)


def _ours() -> list[signal.Signals]:
    """The signals that this thread may handle. A handler that C code installed reads as None and stays as well."""
    if threading.current_thread() is not threading.main_thread():
        return []
    return [number for number in STOPPING if signal.getsignal(number) not in (signal.SIG_IGN, None)]
