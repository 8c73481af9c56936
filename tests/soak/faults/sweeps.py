"""13: a sweep whose workers and drivers are killed."""

from killing import Storm

from soak.fault import Case, Fault


def check(case: Case) -> None:
    jobs = case.size
    workers, drivers = max(1, 30 * jobs // 200), max(1, 5 * jobs // 200)
    storm = Storm(case.folder, jobs=jobs, workers=workers, drivers=drivers, seed=2014, teams=(2, 2))
    storm.run()
    assert storm.killed == {"worker": workers, "driver": drivers}
    storm.check()


FAULT = Fault(
    number=13,
    title="a sweep whose workers and drivers are killed (30 and 5 at the full count)",
    promise="every job has its result, none is lost, none is made twice, all have the same bits",
    counted="jobs",
    full=200,
    quick=16,
    each=None,
    check=check,
    needs=("numba", "tyro", "rich"),
)
