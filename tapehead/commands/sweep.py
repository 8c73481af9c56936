"""`tapehead sweep`: carry out a sweep, show where one stands, carry it to another machine."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tapehead.commands.options import check_count, check_device
from tapehead.commands.sweep_table import SweepProgress, cell_table, progress_cells, summary
from tapehead.commands.tables import new_table, print_table
from tapehead.experiment.run import Interrupted
from tapehead.sweep.driver import Outcome, run_sweep
from tapehead.sweep.folder import SweepFolder, is_sweep
from tapehead.sweep.jobs import Job, seed_words
from tapehead.sweep.pack import pack, unpack
from tapehead.sweep.plan import read_jobs
from tapehead.sweep.state import Snapshot, Watch, cells
from tapehead.terminal import complain, say

if TYPE_CHECKING:
    from tapehead import arguments

SHOWN_FAILURES = 10


def run(options: "arguments.Sweep") -> int:
    return int(ACTIONS[type(options.action).__name__](options.action))


def _run(options: "arguments.Run") -> int:
    jobs, folder = _jobs(options)
    if options.plan:
        return _plan(jobs if jobs is not None else SweepFolder(folder).jobs)
    if options.engine == "local":
        for device in _devices(jobs if jobs is not None else SweepFolder(folder).jobs, options.device):
            check_device(device)
    try:
        with SweepProgress() as progress:
            outcome = run_sweep(
                jobs,
                folder,
                engine=options.engine,
                engine_options=options.engine_options,
                workers=options.workers,
                device=options.device,
                backend=options.backend,
                retry=options.retry,
                observer=progress,
            )
    except Interrupted as stop:
        complain(f"{stop}; saved in {folder}. The same command goes on from there.")
        return stop.exit_code
    return _report(outcome)


def _jobs(options: "arguments.Run") -> tuple[tuple[Job, ...] | None, Path]:
    """The jobs of a file, or None for those of a folder; and the sweep's folder."""
    if is_sweep(options.what):
        if options.out is not None:
            raise ValueError(f"--out goes with a TOML file, but {options.what} is a sweep's folder: leave it out.")
        return None, options.what
    if options.what.suffix != ".toml":
        raise ValueError(f"{options.what} is neither a TOML file nor a sweep's folder: give one of them.")
    return read_jobs(options.what), options.out or Path("runs") / options.what.stem


def _devices(jobs: tuple[Job, ...], given: str | None) -> set[str]:
    return {given} if given is not None else {str(job.plain["place"]["device"]) for job in jobs}


def _plan(jobs: tuple[Job, ...]) -> int:
    for job in jobs:
        print(job.name)
    say(f"{len(jobs):,} jobs, {sum(len(job.seeds) for job in jobs):,} seeds.")
    return 0


def _report(outcome: Outcome) -> int:
    print_table(cell_table(outcome.cells), width=None)
    _print_failures(outcome.states)
    print(f"{summary(outcome.states)}. Runs: {outcome.folder / 'jobs'}")
    return 1 if outcome.failures else 0


def _print_failures(states: Snapshot) -> None:
    failed = states.in_state("failed")
    for one in failed[:SHOWN_FAILURES]:
        print(f"failed: {one.job.name}: {one.failure}")
    if len(failed) > SHOWN_FAILURES:
        print(f"and {len(failed) - SHOWN_FAILURES} more failed.")


def _status(options: "arguments.Status") -> int:
    states = Watch(SweepFolder(options.folder)).snapshot()
    if options.json:
        print(json.dumps([_plain(one) for one in states], indent=1))
        return 0
    running = states.in_state("running")
    if running:
        table = new_table("Running", ("job", "machine"), ("episodes", "bits", "solved"))
        for one in running:
            table.add_row(f"{one.job.label}, {seed_words(one.job.seeds)}", one.machine, *progress_cells(one))
        print_table(table, width=None)
    print_table(cell_table(cells(states)), width=None)
    _print_failures(states)
    print(f"{summary(states)}.")
    return 0


def _plain(one: Any) -> dict[str, Any]:
    result = one.result
    return {
        "job": one.job.name,
        "label": one.job.label,
        "values": one.job.values,
        "seeds": list(one.job.seeds),
        "state": one.state,
        "progress": one.progress,
        "machine": one.machine,
        "failure": one.failure,
        "solved_at": None if result is None else list(result.solved_at),
        "costs": {} if result is None else {score.label: list(score.bits) for score in result.generalisation},
    }


def _pack(options: "arguments.Pack") -> int:
    count = pack(options.folder, options.file)
    print(f"{options.file}: {count:,} files, {options.file.stat().st_size:,} bytes.")
    return 0


def _unpack(options: "arguments.Unpack") -> int:
    sweep = unpack(options.file, options.folder)
    states = Watch(sweep).snapshot()
    print(f"{options.folder}: {summary(states)}. Go on with: tapehead sweep {options.folder}")
    return 0


def _records(options: "arguments.Records") -> int:
    # here, because few sweeps need a confirmation's parts
    from tapehead.reproduce.sweep_records import write_joined, write_records

    check_device(options.device)
    if options.sequences is not None:
        check_count("--sequences", options.sequences)
    given: dict[str, Any] = {"sequences": options.sequences, "device": options.device}
    made = write_records(options.folder, options.out, **given)
    if options.join:
        made = write_joined(options.folder, options.out, **given, tell=say)
    for path in made:
        print(path)
    return 0


ACTIONS: dict[str, Any] = {"Run": _run, "Status": _status, "Pack": _pack, "Unpack": _unpack, "Records": _records}
