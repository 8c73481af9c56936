"""`tapehead export`: a machine as a file for another program, or an animation of its tape."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tapehead import checks, zoo
from tapehead.experiment.config import Experiment
from tapehead.experiment.folder import read_config
from tapehead.portable.write import FORMATS, export_model
from tapehead.tasks import Task
from tapehead.zoo.find import load

if TYPE_CHECKING:
    from tapehead import arguments

ANIMATIONS = ("gif", "mp4")


def run(options: "arguments.Export") -> int:
    model: Any = load(options.what, options.seed)
    if options.tape is not None:
        model = model.with_memory(options.tape)
    name = Path(options.what).resolve().stem if Path(options.what).exists() else options.what
    given = "" if options.out is None else options.out.suffix.removeprefix(".")
    format = checks.one_of("format", options.format or given or "onnx", (*FORMATS, *ANIMATIONS))
    out = options.out or Path(f"{name}.{format}")
    if format in FORMATS:
        written = export_model(model, out, format, step=options.step)
    else:
        written = [_animation(options, model, out.with_suffix(f".{format}"))]
    for path in written:
        print(path)
    return 0


def _animation(options: "arguments.Export", model: Any, out: Path) -> Path:
    """An animation of the tape on the sequence that the figure of the memory shows."""
    from tapehead.figures.animation import animate
    from tapehead.figures.memory_trace import longest_sizes
    from tapehead.figures.run_model import source

    if options.step:
        raise ValueError(f"--step is for graphs, but {out.name} shows whole sequences: leave it out.")
    task = _task(options.what)
    sizes = longest_sizes(task)
    batch = task.sample(source(task), batch_size=1, **sizes)
    heading = f"{task.name}: the tape ({task.label(sizes).lower()})"
    return animate(model, batch, out, loss=task.loss, title=heading)


def _task(what: str) -> Task:
    if Path(what).is_dir():
        return read_config(Path(what)).task
    if Path(what).exists():
        raise ValueError(f"{what} is a file of parameters, which names no task: give a run or a name of the zoo.")
    return Experiment.from_plain(zoo.card(what).experiment).task
