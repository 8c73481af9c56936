"""`python tests/soak`: the whole fault suite, or some of it. Needs no pytest."""

import argparse
import datetime
import os
import signal
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
TESTS = Path(__file__).resolve().parents[1]
sys.path[:1] = [str(TESTS), str(TESTS.parent)]  # the package beside these tests, whichever one is installed
path = [str(TESTS.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
os.environ["PYTHONPATH"] = os.pathsep.join(path)  # for programs that cases start

from soak import table, worker  # noqa: E402
from soak.fault import Fault  # noqa: E402
from soak.faults import FAULTS  # noqa: E402
from soak.runner import Runner, chunks_of, outcome_of  # noqa: E402


def parsed() -> argparse.Namespace:
    date = datetime.datetime.now(datetime.UTC).date()
    parser = argparse.ArgumentParser(prog="python tests/soak", description=__doc__)
    parser.add_argument("faults", nargs="*", type=int, metavar="NUMBER", help="which ones (default: all; see --list)")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time (default: one a core)"
    )
    parser.add_argument("--quick", action="store_true", help="as many cases as in make test; writes no results")
    parser.add_argument("--case", type=int, help="this case alone, in this process; writes no results")
    parser.add_argument("--again", action="store_true", help="repeat what is finished")
    parser.add_argument("--state", type=Path, default=TESTS.parent / ".soak", help="where finished cases are kept")
    parser.add_argument("--out", type=Path, default=table.RESULTS / f"{date}-soak.txt", help="the dated file")
    parser.add_argument("--list", action="store_true", help="list the faults with their counts")
    parser.add_argument("--table", action="store_true", help="only make the table of docs/reliability.md again")
    arguments = parser.parse_args()
    unknown = [number for number in arguments.faults if number not in FAULTS]
    if unknown:
        parser.error(f"there is no fault {unknown[0]}: they are numbered {min(FAULTS)} to {max(FAULTS)}.")
    if arguments.jobs < 1:
        parser.error(f"--jobs is {arguments.jobs}, but at least 1 process is needed.")
    return arguments


def run_case(fault: Fault, number: int) -> int:
    outcome = worker.carry_out(fault, [number], fault.full)
    for failure in outcome["failures"]:
        print(f"case {number}: {failure['error']} ({failure['where']})")
    print(f"{len(outcome['failures'])} failures, {outcome['seconds']:.1f} s")
    return int(bool(outcome["failures"]))


def main() -> int:
    arguments = parsed()
    chosen = [FAULTS[number] for number in arguments.faults or FAULTS]
    if arguments.list:
        for fault in chosen:
            print(f"{fault.number:2d} {fault.title}: {fault.full:,} {fault.counted} ({fault.quick:,} in make test)")
        return 0
    if arguments.case is not None:
        return run_case(chosen[0], arguments.case)
    if not arguments.table:
        failed = measure(arguments, chosen)
        if arguments.quick or failed is None:
            return int(bool(failed))
    rows = table.rows_in(table.RESULTS)
    made = table.table(list(FAULTS.values()), rows)
    table.PAGE.write_text(table.page_with(table.PAGE.read_text(), made))
    return 0 if arguments.table else int(bool(failed))


def measure(arguments: argparse.Namespace, chosen: list[Fault]) -> int:
    """Run, write the dated file; how many cases failed."""
    able = [fault for fault in chosen if fault.missing() is None]
    wanted = [(fault, fault.quick if arguments.quick else fault.full) for fault in able]
    if arguments.again:
        for fault, count in wanted:
            for chunk in chunks_of(fault, count, arguments.state):
                chunk.file.unlink(missing_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as Ctrl-C: its processes end with it
    Runner(arguments.state, table.place_of(), arguments.jobs).run(wanted)
    outcomes = [outcome_of(fault, count, arguments.state) for fault, count in wanted]
    if not arguments.quick:
        everything = [outcome_of(fault, fault.full, arguments.state) for fault in FAULTS.values()]
        reasons = {fault.title: reason for fault in FAULTS.values() if (reason := fault.missing()) is not None}
        table.write_results(arguments.out, everything, reasons)
        print(arguments.out)
    return sum(len(outcome.failures) for outcome in outcomes)


if __name__ == "__main__":
    sys.exit(main())
