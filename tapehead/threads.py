"""How many threads torch computes on."""

import contextlib
import threading
from collections.abc import Iterator

import torch

_one = threading.RLock()


@contextlib.contextmanager
def one_thread() -> Iterator[int]:
    """Torch computes on one thread meanwhile; gives the number that it had.

    For operations that are short, or that other threads do side by side: where another program has a core, torch's
    second thread waits milliseconds for it, in every operation.
    """
    with _one:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield threads
        finally:
            torch.set_num_threads(threads)
