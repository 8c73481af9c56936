"""Neural Turing Machines (Graves, Wayne, Danihelka 2014): a library and a laboratory.

>>> import tapehead
>>> ntm = tapehead.NTM(input_size=9, output_size=8)        # like torch.nn.LSTM
>>> task = tapehead.make_task("copy")

Names are loaded when first used, because torch takes a second to import and `tapehead --help` should not.
"""

import importlib
from typing import TYPE_CHECKING, Any

from tapehead._version import __version__

if TYPE_CHECKING:
    from tapehead import equations, zoo
    from tapehead.evaluation.metrics import bits_per_sequence, ngram_gap, wrong_bits
    from tapehead.kernels.ntm_scan.contract import Trace
    from tapehead.models.config import NTMConfig
    from tapehead.models.lstm import PaperLSTM
    from tapehead.models.ntm import NTM, NTMCell, NTMState
    from tapehead.streams import stream
    from tapehead.tasks import Batch, Task, make_task
    from tapehead.training.optimisers import RMSpropGraves
    from tapehead.zoo.anywhere import load

_HOMES = {
    "equations": "tapehead.equations",
    "bits_per_sequence": "tapehead.evaluation.metrics",
    "ngram_gap": "tapehead.evaluation.metrics",
    "wrong_bits": "tapehead.evaluation.metrics",
    "Trace": "tapehead.kernels.ntm_scan.contract",
    "NTMConfig": "tapehead.models.config",
    "PaperLSTM": "tapehead.models.lstm",
    "NTM": "tapehead.models.ntm",
    "NTMCell": "tapehead.models.ntm",
    "NTMState": "tapehead.models.ntm",
    "stream": "tapehead.streams",
    "Batch": "tapehead.tasks",
    "Task": "tapehead.tasks",
    "make_task": "tapehead.tasks",
    "RMSpropGraves": "tapehead.training.optimisers",
    "load": "tapehead.zoo.anywhere",
    "zoo": "tapehead.zoo",
}

__all__ = [
    "NTM",
    "Batch",
    "NTMCell",
    "NTMConfig",
    "NTMState",
    "PaperLSTM",
    "RMSpropGraves",
    "Task",
    "Trace",
    "__version__",
    "bits_per_sequence",
    "equations",
    "load",
    "make_task",
    "ngram_gap",
    "stream",
    "wrong_bits",
    "zoo",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tapehead' has no attribute {name!r}")
    module = importlib.import_module(_HOMES[name])
    value = module if name in ("equations", "zoo") else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
