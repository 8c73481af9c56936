"""Neural Turing Machines (Graves, Wayne, Danihelka 2014): a library and a laboratory.

>>> import tapehead
>>> ntm = tapehead.NTM(input_size=9, output_size=8)        # like torch.nn.LSTM
>>> experiment = tapehead.Experiment(task=tapehead.make_task("copy"))
>>> result = tapehead.train(experiment, "runs/mine")

Names are loaded when first used, because torch takes a second to import and `tapehead --help` should not.
"""

import importlib
from typing import TYPE_CHECKING, Any

from tapehead._version import __version__
from tapehead.registry import CONTROLLERS, FIGURES, MODELS, OPTIMISERS, SCHEDULES, TASKS

if TYPE_CHECKING:
    from tapehead import convert, equations, equations_dnc, zoo
    from tapehead.evaluation.generalisation import Score
    from tapehead.evaluation.metrics import bits_per_sequence, ngram_gap, wrong_bits
    from tapehead.experiment.config import Experiment
    from tapehead.experiment.parts import Clipping, Curriculum, Evaluation, Model, Place, Restarts, Training, Validation
    from tapehead.experiment.results import Result
    from tapehead.experiment.run import Interrupted, Observer, Status, evaluate, train
    from tapehead.experiment.schedules import Constant, Cosine, Schedule, WarmupCosine
    from tapehead.figures.animation import animate
    from tapehead.figures.sequence import draw
    from tapehead.figures.view import RunView
    from tapehead.kernels.dnc_scan.contract import DNCState, DNCTrace
    from tapehead.kernels.ntm_scan.contract import Trace
    from tapehead.kernels.ntm_scan.controllers import Controller
    from tapehead.kernels.update.optimisers import Adam, Graves, Optimiser
    from tapehead.losses import BINARY, CATEGORICAL, Loss
    from tapehead.models import SequenceModel
    from tapehead.models.cell import NTMCell
    from tapehead.models.config import NTMConfig
    from tapehead.models.dnc.cell import DNCCell
    from tapehead.models.dnc.config import DNCConfig
    from tapehead.models.dnc.model import DNC
    from tapehead.models.lstm import PaperLSTM
    from tapehead.models.machine import NTMState
    from tapehead.models.ntm import NTM
    from tapehead.models.transformer.model import Transformer
    from tapehead.models.transformer.skips import SkipSet
    from tapehead.optim import RMSpropGraves
    from tapehead.paper.recipes import general_experiment, row_experiment
    from tapehead.portable.write import export_model
    from tapehead.streams import Stream, stream
    from tapehead.sweep.driver import run_sweep
    from tapehead.sweep.jobs import Job
    from tapehead.tasks import Batch, Size, Task, make_task
    from tapehead.zoo.find import load

_HOMES = {
    "tapehead.evaluation.generalisation": ("Score",),
    "tapehead.evaluation.metrics": ("bits_per_sequence", "ngram_gap", "wrong_bits"),
    "tapehead.experiment.config": ("Experiment",),
    "tapehead.experiment.parts": (
        *("Clipping", "Curriculum", "Evaluation", "Model", "Place", "Restarts", "Training", "Validation"),
    ),
    "tapehead.experiment.results": ("Result",),
    "tapehead.experiment.run": ("Interrupted", "Observer", "Status", "evaluate", "train"),
    "tapehead.experiment.schedules": ("Constant", "Cosine", "Schedule", "WarmupCosine"),
    "tapehead.figures.animation": ("animate",),
    "tapehead.figures.sequence": ("draw",),
    "tapehead.figures.view": ("RunView",),
    "tapehead.kernels.dnc_scan.contract": ("DNCState", "DNCTrace"),
    "tapehead.kernels.ntm_scan.contract": ("Trace",),
    "tapehead.kernels.ntm_scan.controllers": ("Controller",),
    "tapehead.kernels.update.optimisers": ("Adam", "Graves", "Optimiser"),
    "tapehead.losses": ("BINARY", "CATEGORICAL", "Loss"),
    "tapehead.models": ("SequenceModel",),
    "tapehead.models.config": ("NTMConfig",),
    "tapehead.models.dnc.cell": ("DNCCell",),
    "tapehead.models.dnc.config": ("DNCConfig",),
    "tapehead.models.dnc.model": ("DNC",),
    "tapehead.models.lstm": ("PaperLSTM",),
    "tapehead.models.cell": ("NTMCell",),
    "tapehead.models.machine": ("NTMState",),
    "tapehead.models.ntm": ("NTM",),
    "tapehead.models.transformer.model": ("Transformer",),
    "tapehead.models.transformer.skips": ("SkipSet",),
    "tapehead.optim": ("RMSpropGraves",),
    "tapehead.paper.recipes": ("general_experiment", "row_experiment"),
    "tapehead.portable.write": ("export_model",),
    "tapehead.streams": ("Stream", "stream"),
    "tapehead.sweep.driver": ("run_sweep",),
    "tapehead.sweep.jobs": ("Job",),
    "tapehead.tasks": ("Batch", "Size", "Task", "make_task"),
    "tapehead.zoo.find": ("load",),
}
_MODULES = ("convert", "equations", "equations_dnc", "zoo")
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "BINARY",
    "CATEGORICAL",
    "CONTROLLERS",
    "DNC",
    "FIGURES",
    "MODELS",
    "NTM",
    "OPTIMISERS",
    "SCHEDULES",
    "TASKS",
    "Adam",
    "Batch",
    "Clipping",
    "Constant",
    "Controller",
    "Cosine",
    "Curriculum",
    "DNCCell",
    "DNCConfig",
    "DNCState",
    "DNCTrace",
    "Evaluation",
    "Experiment",
    "Graves",
    "Interrupted",
    "Job",
    "Loss",
    "Model",
    "NTMCell",
    "NTMConfig",
    "NTMState",
    "Observer",
    "Optimiser",
    "PaperLSTM",
    "Place",
    "RMSpropGraves",
    "Restarts",
    "Result",
    "RunView",
    "Schedule",
    "Score",
    "SequenceModel",
    "Size",
    "SkipSet",
    "Status",
    "Stream",
    "Task",
    "Trace",
    "Training",
    "Transformer",
    "Validation",
    "WarmupCosine",
    "__version__",
    "animate",
    "bits_per_sequence",
    "convert",
    "draw",
    "equations",
    "equations_dnc",
    "evaluate",
    "export_model",
    "general_experiment",
    "load",
    "make_task",
    "ngram_gap",
    "row_experiment",
    "run_sweep",
    "stream",
    "train",
    "wrong_bits",
    "zoo",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value: Any = importlib.import_module(f"tapehead.{name}")
    elif name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
    else:
        raise AttributeError(f"module 'tapehead' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
