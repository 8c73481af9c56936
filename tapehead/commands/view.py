"""`tapehead view`: watch a machine in the browser."""

import os
import sys
import threading
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

from tapehead.viewer import catalogue
from tapehead.viewer.catalogue import Machine

if TYPE_CHECKING:
    from tapehead import arguments


def run(options: "arguments.View") -> int:
    if options.export is not None:
        return _export(options, options.export)
    if options.also:
        raise ValueError("--also is for --export: all machines of the zoo are on the page anyway.")
    return _serve(options)


def _chosen(options: "arguments.View") -> list[Machine]:
    """The machines that were asked for, the one to show first before the others of its run."""
    if options.what is None:
        return []
    found = catalogue.find(options.what)
    if options.seed is not None:
        first = [machine for machine in found if machine.seed == options.seed]
        if not first:
            raise ValueError(f"seed {options.seed} is not in {options.what}: leave --seed out for the first one.")
        found = first + [machine for machine in found if machine not in first]
    return found


def _export(options: "arguments.View", out: Path) -> int:
    from tapehead.viewer.export import export

    if options.what is None:
        raise ValueError("--export needs a machine: give a run's folder, or a name of the zoo (tapehead zoo list).")
    machines = _chosen(options)[:1] + [catalogue.find(name)[0] for name in options.also]
    done = export(machines, out)
    print(f"{out}: {done.size:,} bytes, weights in {done.encoding}, {done.snapshots} snapshots of its training")
    return 0


def _serve(options: "arguments.View") -> int:
    from tapehead.viewer.server import Content, Server

    if not 0 <= options.port < 2**16:
        raise ValueError(f"--port is {options.port}, but it must be from 0, for any that is free, to 65535.")
    chosen = _chosen(options)  # refuses what is not there, before anything listens
    zoo, here = catalogue.zoo_machines(), Path.cwd()

    def find() -> tuple[list[Machine], str | None]:
        machines = {machine.id: machine for machine in [*chosen, *zoo, *catalogue.runs_below(here)]}
        return list(machines.values()), chosen[0].id if chosen else None

    with Server(Content(find), options.port) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(f"The viewer is at {server.url} until you press Ctrl-C.", flush=True)
        try:
            if not options.no_open and _has_screen():
                webbrowser.open(server.url)
            threading.Event().wait()
        finally:
            server.shutdown()
    return 0


def _has_screen() -> bool:
    """Whether a browser could open a window; one for terminals would take this terminal."""
    return sys.platform != "linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
