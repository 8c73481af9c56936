"""`tapehead.load`: a trained machine, from a run's folder, from the zoo, or from an exported file."""

from pathlib import Path

from tapehead.experiment import folder
from tapehead.models import SequenceModel
from tapehead.portable.weights import read_weights
from tapehead.zoo import store


def load(what: str | Path, seed: int | None = None) -> SequenceModel:
    """The trained machine of a run's folder, or of that name in the zoo if there is no such folder; in eval mode.

    A file NAME.safetensors is read as `tapehead.export_model` writes it. seed: which one of a run's population (the
    first by default).
    """
    if Path(what).suffix == ".safetensors" and Path(what).is_file():
        if seed is not None:
            raise ValueError(f"seed is {seed}, but {what} holds one machine: leave seed out.")
        return read_weights(Path(what))
    if isinstance(what, Path) or Path(what).exists():
        return folder.load(what, seed)
    if what not in store.names():
        raise ValueError(f"{what} is no folder of a run, nor in the zoo: {store.no_machine(what)}")
    if seed is not None:
        raise ValueError(f"seed is {seed}, but {what} is one machine of the zoo: leave seed out.")
    return store.load(what)
