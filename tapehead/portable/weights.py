"""Parameters as safetensors, with the options of the machine in the header, so that it can be made again."""

import dataclasses
import json
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError

from tapehead import files
from tapehead.models.config import NTMConfig
from tapehead.models.ntm import NTM
from tapehead.models.sequence import SequenceModel

MOST = 1 << 32
"""Bytes of a file that is read."""


def weights_as_bytes(model: SequenceModel) -> bytes:
    """All parameters under their names; for an NTM, its options too."""
    header = {"made_by": "tapehead", "model": "ntm" if isinstance(model, NTM) else type(model).__name__}
    if isinstance(model, NTM):
        header["options"] = json.dumps(dataclasses.asdict(model.config), sort_keys=True)
    tensors = {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}
    return bytes(safetensors.torch.save(tensors, header))


def read_weights(path: Path) -> NTM:
    """The machine of a file that `export_model` wrote, in eval mode."""
    try:
        data = files.read(path, MOST, links=True)
        tensors = safetensors.torch.load(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
        if "options" not in header and header["made_by"] == "tapehead":
            raise ValueError(f"the parameters of a {header['model']} without its options, for load_state_dict")
        config = NTMConfig.from_options(json.loads(header["options"]))
        dtype = tensors["output.weight"].dtype
    except (SafetensorError, files.NotPlain, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} holds no machine that can be made again ({error}): give another file.") from None
    options = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    model = NTM(**options, dtype=dtype if dtype in (torch.float32, torch.float64) else None)
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise ValueError(
            f"{path} has other tensors than its machine ({str(error).splitlines()[-1].strip()})."
        ) from None
    return model.eval()
