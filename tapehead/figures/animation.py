"""`tapehead.animate`: the tape of a machine, step by step, as a GIF or an MP4.

At the top inputs and outputs over time, with a mark at the present step. Below them the tape as it is after that step:
slots from left to right, their entries downwards, with the weightings of the write heads above and of the read heads
below it. Of a long tape the used slots are shown, as in the figure of the memory.
"""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.animation import FFMpegWriter, FuncAnimation, PillowWriter
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from tapehead import checks, files
from tapehead.figures import page, style
from tapehead.figures.memory_trace import USED, Numbers, make_memory_trace, used_slots
from tapehead.figures.run_model import run_with_trace
from tapehead.figures.sequence import OneSequence, as_batch
from tapehead.losses import BINARY, Loss
from tapehead.models.sequence import SequenceModel
from tapehead.tasks import Batch

SUFFIXES = (".gif", ".mp4")
COLOURS = (style.VERMILION, style.BLUE, style.GREEN, style.ORANGE)
"""Of the heads; the fifth has the first one's colour again."""

# Inches.
WIDTH, LEFT, RIGHT = 7.2, 0.85, 0.85
ROOM = WIDTH - LEFT - RIGHT
STRIP, BARS, GAP, TAPE, FOOT = 0.75, 0.6, 0.08, 1.5, 0.85
DPI = 100


def animate(
    model: SequenceModel,
    batch: Batch | Tensor,
    path: str | Path,
    *,
    row: int = 0,
    frames_per_second: int = 6,
    loss: Loss = BINARY,
    title: str = "",
) -> Path:
    """Write an animation of the tape on one row of a batch: NAME.gif, or NAME.mp4 where ffmpeg is installed.

    batch: a `Batch`, or inputs [T, B, I] alone.
    """
    path = Path(path)
    if path.suffix not in SUFFIXES:
        raise ValueError(f"{path} has no ending of {' or '.join(SUFFIXES)}: give it one.")
    if path.suffix == ".mp4" and not FFMpegWriter.isAvailable():
        raise ValueError(f"{path} needs ffmpeg, which is not installed: install it, or write a .gif.")
    checks.whole("frames_per_second", frames_per_second, 1, 100)
    if model.memory_slots is None:
        raise ValueError(f"{type(model).__name__} has no memory: there is no tape to be animated.")
    whole = as_batch(model, batch)
    rows = whole.inputs.shape[1]
    if not 0 <= checks.whole("row", row, 0) < rows:
        raise ValueError(f"row is {row}, but the batch has rows 0 to {rows - 1}.")
    frames = Frames(model, OneSequence.of(whole, row, loss), title or f"{type(model).__name__}: the tape")
    kind = PillowWriter if path.suffix == ".gif" else FFMpegWriter
    files.expect_file(path)
    with files.writing(path.parent), style.look():
        path.parent.mkdir(parents=True, exist_ok=True)
        moving = FuncAnimation(frames.figure, frames.show, frames=frames.steps, init_func=list, repeat=False)
        moving.save(path, writer=kind(fps=frames_per_second), dpi=DPI)
    return path


class Frames:
    """The figure of one step, and what changes in it from step to step. Letters: T steps, H heads, N slots, M width."""

    def __init__(self, model: SequenceModel, task: OneSequence, title: str) -> None:
        seen = make_memory_trace(model, task)
        assert seen is not None, "the model has a memory"
        self.slots = used_slots(seen)
        self._inputs, self._outputs = seen.inputs, seen.outputs  # [I, T], [O, T]
        self._writing, self._reading = seen.writing[:, self.slots], seen.reading[:, self.slots]  # [H, N, T]
        memory = run_with_trace(model, task.batch)[1].memory[:, 0].double().cpu().numpy()
        self._memory = memory[:, self.slots].transpose(0, 2, 1)  # [T, M, N]
        self.steps, self._tape_slots = len(memory), memory.shape[1]
        with style.look():
            self._build(title)

    def _build(self, title: str) -> None:
        height = 0.55 + 2 * (STRIP + 0.32) + 0.3 + 2 * (BARS + GAP) + TAPE + FOOT
        self.figure = Figure(figsize=(WIDTH, height))
        FigureCanvasAgg(self.figure)
        page.text(self.figure, 0.15, 0.25, title, fontsize=12)
        self._clock = self.figure.text(
            *page.point(self.figure, WIDTH - 0.15, 0.25), "", ha="right", va="center_baseline"
        )
        y, self._marks = 0.72, []
        top = float(np.abs(self._inputs).max()) or 1.0
        low = -top if float(self._inputs.min()) < 0 else 0.0
        unscored = style.BITS.with_extremes(bad=style.UNSCORED)
        for label, values, limits in (
            ("Inputs", self._inputs, (low, max(top, 1.0))),
            ("Outputs", self._outputs, (0, 1)),
        ):
            axes = page.axes(self.figure, LEFT, y, ROOM, STRIP)
            image = axes.imshow(values, cmap=unscored, vmin=limits[0], vmax=limits[1])
            axes.set_title(label if label == "Inputs" else "Outputs so far (grey: not scored, or not given yet)")
            axes.set_ylabel("Channel")
            axes.tick_params(labelbottom=label == "Outputs")
            axes.xaxis.set_major_locator(MaxNLocator(10, integer=True, steps=[1, 2, 5, 10]))
            self._marks.append(axes.axvspan(-0.5, 0.5, fill=False, edgecolor=style.ORANGE, linewidth=1.8))
            self._key(image, y, STRIP, f"{label[:-1]} value", limits)
            y += STRIP + 0.32
        axes.set_xlabel("Time (steps)", labelpad=1)
        self._answers = image
        y += 0.3
        self._bars = [self._weightings(y, "Write", self._writing, upwards=True)]
        y += BARS + GAP
        self._tape = self._draw_tape(y)
        y += TAPE + GAP
        self._bars.append(self._weightings(y, "Read", self._reading, upwards=False))
        page.text(self.figure, 0.15, height - 0.2, self._caption(), fontsize=8, color=style.FAINT)

    def _draw_tape(self, y: float) -> AxesImage:
        axes = page.axes(self.figure, LEFT, y, ROOM, TAPE)
        reach = float(np.abs(self._memory).max()) or 1.0
        image = axes.imshow(self._memory[0], cmap=style.SIGNED, vmin=-reach, vmax=reach)
        axes.set_ylabel("Memory entry")
        axes.tick_params(labelbottom=False, bottom=False)
        self._key(image, y, TAPE, "Entry", (-reach, 0, reach))
        return image

    def _weightings(self, y: float, kind: str, weightings: Numbers, *, upwards: bool) -> list[Any]:
        """Bars of all heads of a kind, side by side; those below the tape hang down from it."""
        axes: Axes = page.axes(self.figure, LEFT, y, ROOM, BARS)
        heads, slots = weightings.shape[:2]
        axes.set_xlim(-0.5, slots - 0.5)
        axes.set_ylim(*((0, 1) if upwards else (1, 0)))
        axes.set_yticks([0, 1])
        axes.set_ylabel(kind)
        axes.spines["top"].set_visible(not upwards)
        axes.spines["bottom"].set_visible(upwards)
        axes.tick_params(labelbottom=not upwards, bottom=not upwards)
        if not upwards:
            step = max(1, -(-slots // 12))
            labelled = range(0, slots, step)
            axes.set_xticks(labelled, [str(self.slots[place]) for place in labelled])
            axes.set_xlabel("Location (slot)", labelpad=1)
        bars = []
        for head in range(heads):
            colour = COLOURS[head % len(COLOURS)]
            places = np.arange(slots) - 0.45 + (head + 0.5) * 0.9 / heads
            bars.append(axes.bar(places, np.zeros(slots), width=0.9 / heads, color=colour))
        if heads > 1 and upwards:
            names = [f"Head {head + 1}" for head in range(heads)]
            axes.legend(bars, names, loc="lower left", bbox_to_anchor=(0, 0.95), ncols=8, fontsize=7.5, borderpad=0)
        return bars

    def _key(self, image: AxesImage, y: float, height: float, label: str, ticks: Any) -> None:
        colours: Colormap = image.get_cmap()
        scale = ScalarMappable(Normalize(*image.get_clim()), colours)
        place = page.axes(self.figure, WIDTH - RIGHT + 0.12, y, 0.09, height)
        bar = self.figure.colorbar(scale, cax=place, ticks=ticks, format="%.2g")
        bar.set_label(label, fontsize=8, labelpad=2)
        bar.outline.set_linewidth(0.4)

    def _caption(self) -> str:
        total, shown = self._tape_slots, len(self.slots)
        ring = f"The tape is a ring: slot 0 follows slot {total - 1}."
        if shown == total:
            return f"Bars: weightings. {ring}"
        return f"Bars: weightings. {shown} of {total} slots: elsewhere no weighting exceeds {USED:g}. {ring}"

    def show(self, t: int) -> list[Any]:
        """Set everything to how it is after step t."""
        self._clock.set_text(f"after step {t} of 0 to {self.steps - 1}")
        for mark in self._marks:
            mark.set_x(t - 0.5)
        told = self._outputs.copy()
        told[:, t + 1 :] = np.nan
        self._answers.set_data(told)
        self._tape.set_data(self._memory[t])
        for bars, weightings in zip(self._bars, (self._writing[..., t], self._reading[..., t]), strict=True):
            for container, values in zip(bars, weightings, strict=True):
                for bar, value in zip(container, values, strict=True):
                    bar.set_height(value)
        return []
