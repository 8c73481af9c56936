"""The threads of the CPU scan: whatever is raised, the call does not end while a thread still writes."""

import os
import signal
import threading

import pytest

from tapehead.kernels.ntm_scan.cpu import openmp
from tapehead.kernels.ntm_scan.cpu.threads import Job, Pool

ITEMS = [(0, k) for k in range(40)]


class TorchThreads:
    """Torch's own, with the face of a pool."""

    def run(self, job):
        openmp.run(job, 2)

    def close(self):
        pass


@pytest.fixture(params=["own", "torch"])
def pool(request):
    if request.param == "torch" and not openmp.usable(2, len(ITEMS)):
        pytest.skip("torch has no OpenMP runtime with GOMP_parallel")
    pool = Pool(2) if request.param == "own" else TorchThreads()
    yield pool
    pool.close()


def test_every_item_is_done_once(pool):
    for count in (0, 1, 2, 40):
        done = []
        pool.run(Job(done.append, ITEMS[:count]))
        assert sorted(done) == ITEMS[:count]


class Stage(Job):
    """Two threads: the helper stays inside one item until `leave` is set, the caller is interrupted in another."""

    def __init__(self, then, native):
        super().__init__(self.act, ITEMS)
        self.main, self.begun, self.helper_left = threading.get_ident(), [], False
        self.helper_inside, self.leave = threading.Event(), threading.Event()
        self.then = then  # what another thread does once the rest of the items has been dropped
        self.native = native  # whether the caller waits outside Python, where Ctrl-C is heard afterwards
        self.waiting, self.interrupts = native, 0

    def act(self, item):
        self.begun.append(item)
        if threading.get_ident() == self.main:
            assert self.helper_inside.wait(60)
            raise KeyboardInterrupt
        self.helper_inside.set()
        assert self.leave.wait(60)
        self.helper_left = True

    def wait(self):
        self.waiting = True
        try:
            super().wait()
        finally:
            self.waiting = False

    def interrupt(self, *_):
        """What Ctrl-C does: only while the caller waits, because nothing is promised between two lines of `run`."""
        if self.waiting:
            self.interrupts += 1
            raise KeyboardInterrupt

    def drop(self):
        super().drop()
        if self.then is not None:
            threading.Thread(target=self.then, args=(self,)).start()
            self.then = None


def leave_later(stage):
    stage.leave.wait(0.2)
    stage.leave.set()


def interrupt_twice_more(stage):
    for count in (1, 2):
        while stage.interrupts < count:
            stage.leave.wait(0.2)
            os.kill(os.getpid(), signal.SIGINT)
            if stage.native:
                break
    leave_later(stage)


@pytest.mark.parametrize("then", [leave_later, interrupt_twice_more])
def test_an_interrupted_caller_waits_for_the_helper(pool, then):
    """Also when Ctrl-C comes again while it waits. Items that no thread has begun are dropped."""
    stage = Stage(then, native=isinstance(pool, TorchThreads))
    before = signal.signal(signal.SIGINT, stage.interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            pool.run(stage)
    finally:
        signal.signal(signal.SIGINT, before)
    assert stage.helper_left
    assert len(stage.begun) == 2
    done = []
    pool.run(Job(done.append, ITEMS))  # and the pool can be used again
    assert sorted(done) == ITEMS


def test_a_helpers_error_is_raised_and_drops_the_rest(pool):
    main, helper_failed, begun = threading.get_ident(), threading.Event(), []

    def work(item):
        begun.append(item)
        if threading.get_ident() == main:
            assert helper_failed.wait(60)
        else:
            helper_failed.set()
            raise ArithmeticError("in a helper")

    with pytest.raises(ArithmeticError, match="in a helper"):
        pool.run(Job(work, ITEMS))
    assert len(begun) < len(ITEMS)


def test_the_work_is_let_go_of(pool):
    """A job that a helper comes to late must not keep tensors alive."""
    import gc
    import weakref

    class Tensors:
        pass

    tensors = Tensors()
    gone = weakref.ref(tensors)
    job = Job(lambda item, alive=tensors: None, ITEMS)
    pool.run(job)
    del tensors
    gc.collect()
    assert gone() is None


def test_a_child_does_not_wait_for_its_parents_threads(pool):
    """Of a fork: torch's threads are not there, but the runtime believes that they are."""
    pool.run(Job(lambda item: None, ITEMS))
    child = os.fork()
    if child == 0:
        os._exit(int(openmp.usable(2, len(ITEMS))))
    assert os.waitpid(child, 0)[1] == 0


def test_a_few_items_do_not_take_a_large_team():
    assert not openmp.usable(64, 4)
