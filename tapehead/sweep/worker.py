"""The program of a local worker process: its assignment is the first line of standard input, as JSON.

When standard input ends, the driver is gone: the worker saves what it trains and stops.
"""

import json
import os
import signal
import sys
import threading

from tapehead.sweep.work import Assignment, work


def main() -> None:
    values = json.loads(sys.stdin.readline())
    assignment = Assignment(**values | {"search": tuple(values["search"])})
    threading.Thread(target=_stop_with_the_driver, name="tapehead-driver", daemon=True).start()
    work(assignment)
    sys.stdout.flush()
    os._exit(0)  # the thread that reads standard input would hold up an orderly end


def _stop_with_the_driver() -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
