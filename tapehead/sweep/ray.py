"""Workers as tasks of Ray: on this machine, or on a cluster whose machines share the sweep's folder."""

import os
import re
from collections.abc import Mapping
from typing import Any

from tapehead.sweep.engines import Engine, refuse_options
from tapehead.sweep.folder import SweepFolder
from tapehead.sweep.work import Assignment, work

OPTIONS = ("address", "num_cpus")


class RayEngine(Engine):
    """Options: address, of a cluster that runs (default: the one that RAY_ADDRESS names, or a new one on this machine);
    num_cpus, of a new one."""

    def __init__(self, sweep: SweepFolder, assignment: Assignment, options: Mapping[str, str]) -> None:
        super().__init__(sweep, assignment, options)
        refuse_options("ray", options, OPTIONS)
        self._ray = _import()
        self._own = not self._ray.is_initialized()
        if self._own:
            self._init()
        self._kind = "GPU" if self.device.startswith("cuda") else "CPU"
        self._task = self._ray.remote(num_cpus=1, num_gpus=1 if self._kind == "GPU" else 0, max_retries=0)(work)
        self._references: list[Any] = []
        self._refuse_no_gpu()

    def _init(self) -> None:
        """Connect to a cluster, or start one."""
        given: dict[str, Any] = {name: self.options[name] for name in ("address",) if name in self.options}
        if "num_cpus" in self.options:
            text = self.options["num_cpus"]
            if not re.fullmatch("[1-9][0-9]{0,5}", text):
                raise ValueError(f"num_cpus is {text!r}, but it must be a whole number of at least 1.")
            given["num_cpus"] = int(text)
        if "address" not in given and "RAY_ADDRESS" not in os.environ:
            given["include_dashboard"] = False
        try:
            self._ray.init(log_to_driver=False, **given)
        except (OSError, RuntimeError, ValueError) as error:
            says = " ".join(str(error).split())
            raise ValueError(f"Ray cannot be started or reached ({says}): check --engine-options.") from error

    def _count(self) -> int:
        """How many workers have a place in the cluster."""
        return int(self._ray.cluster_resources().get(self._kind, 0))

    def _refuse_no_gpu(self) -> None:
        """Tasks that need a GPU would wait for one for ever."""
        if self._kind == "GPU" and self._count() == 0:
            self.close()
            raise ValueError(
                f"the experiments run on {self.device}, but Ray's cluster has 0 GPUs: give --device cpu, or with "
                "--engine-options the address of a cluster that has some."
            )

    @classmethod
    def check(cls) -> None:
        _import()

    @property
    def running(self) -> int:
        return len(self._references)

    def default_workers(self) -> int:
        return max(1, self._count())

    def start(self) -> None:
        self._references.append(self._task.remote(self.assignment))

    def ended(self) -> list[str]:
        if not self._references:
            return []
        over, self._references = self._ray.wait(self._references, num_returns=len(self._references), timeout=0)
        return [self._why(reference) for reference in over]

    def _why(self, reference: Any) -> str:
        try:
            self._ray.get(reference)
        except self._ray.exceptions.TaskCancelledError:
            return ""
        except self._ray.exceptions.RayError as error:
            return str(error).strip().splitlines()[-1]
        return ""

    def kill(self) -> None:
        for reference in self._references:
            self._ray.cancel(reference, force=True)

    def close(self) -> None:
        self.kill()
        super().close()
        if self._own:
            self._ray.shutdown()


def _import() -> Any:
    try:
        import ray
    except ImportError:
        raise ValueError("the engine ray needs Ray, which is not installed: pip install 'tapehead[ray]'.") from None
    return ray
