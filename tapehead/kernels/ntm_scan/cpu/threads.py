"""Threads that share out the groups of a scan."""

import collections
import os
import queue
import threading
from collections.abc import Callable

Item = tuple[int, int]


class Job:
    """Work items that any number of threads take in turn. Items are independent, so their order changes nothing.

    No locks: taking from a deque and appending to a list are atomic, and a lock that two threads want at the same time
    puts one to sleep, which on a busy machine costs more than an item.
    """

    def __init__(self, work: Callable[[Item], None], items: list[Item]) -> None:
        self._work = work
        self._items = collections.deque(items)
        self._errors: list[BaseException] = []
        self._helpers_in: list[None] = []  # one entry for every helper that began to take items,
        self._helpers_out: list[None] = []  # and one for every helper that ended
        self._changed = threading.Event()

    def take_items(self) -> None:
        """Takes items until there are none left."""
        while self._items:
            try:
                item = self._items.popleft()
            except IndexError:  # another thread was faster
                return
            self._work(item)

    def help(self) -> None:
        """Takes items in a thread that did not bring the job. After an error no thread takes another one."""
        self._helpers_in.append(None)  # before it takes an item: `wait` must know of every thread that may have one
        try:
            self.take_items()
        except BaseException as error:
            self._errors.append(error)
            self.drop()
        self._helpers_out.append(None)
        self._changed.set()

    def drop(self) -> None:
        """Drop the items that no thread has begun."""
        self._items.clear()

    def wait(self) -> None:
        """Waits until no helper has an item, and none will take one: all items must have been taken or dropped."""
        while len(self._helpers_out) < len(self._helpers_in):
            self._changed.wait()
            self._changed.clear()

    def end(self) -> BaseException | None:
        """Lets go of the tensors that the work holds, for helpers that come too late; the first error, if any."""
        self._work = _nothing
        return self._errors[0] if self._errors else None


def _nothing(item: Item) -> None:
    pass


class Pool:
    """Threads that wait for jobs. They do not survive a fork; `pool` makes new ones."""

    def __init__(self, threads: int) -> None:
        self.process, self.threads = os.getpid(), threads
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        for _ in range(threads - 1):  # the thread that brings a job takes part in it
            threading.Thread(target=self._serve, name="tapehead-scan", daemon=True).start()

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.help()
            del job  # and with it the tensors that it holds

    def run(self, job: Job) -> None:
        """Takes part in the job, and returns or raises when no thread works on it any more.

        Whatever is raised here meanwhile, Ctrl-C above all, is raised at the end: helpers write to tensors that the
        caller would free. (Another Ctrl-C between two lines of this function gets through. It frees nothing, because
        the job's work holds the tensors until the last helper leaves.)
        """
        error: BaseException | None = None
        try:
            for _ in range(self.threads - 1):
                self._jobs.put(job)
            job.take_items()
        except BaseException as raised:
            error = raised
        while True:
            try:
                if error is not None:
                    job.drop()
                job.wait()
                break
            except BaseException as raised:
                error = error or raised
        failed = job.end()
        error = error or failed
        if error is not None:
            raise error

    def close(self) -> None:
        for _ in range(self.threads - 1):
            self._jobs.put(None)


_pool: Pool | None = None
_lock = threading.Lock()


def _after_fork() -> None:
    """A child has none of its parent's threads, and a lock that one of them held would never be free again."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def pool(threads: int) -> Pool:
    global _pool
    with _lock:
        found = _pool
        if found is None or found.process != os.getpid() or found.threads != threads:
            if found is not None and found.process == os.getpid():
                found.close()
            found = _pool = Pool(threads)
        return found
