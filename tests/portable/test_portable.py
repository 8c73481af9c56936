"""Exported machines against torch: graphs in onnxruntime and torch.export for any length and batch, and safetensors.

Machines are small and in float64 where the format's runtime has it, so that an error is an error and not a rounding.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

import tapehead
from tapehead import cli
from tapehead.models.cell import NTMCell
from tapehead.models.machine import NTMState
from tapehead.models.ntm import NTM
from tapehead.portable import write

ONNX = "the extra is not installed: pip install tapehead[onnx]"
SMALL = {"controller_size": 5, "memory_slots": 7, "memory_width": 3}
RICH = {
    "controller_layers": 2,
    "initial_controller": "learned",
    "read_heads": 2,
    "write_heads": 3,
    "shift": "scalar",
    "write_gate": True,
}
RICH |= {"interface_clip": 2.0, "initial_weightings": "learned", "initial_memory": "random", "key_activation": "tanh"}


def build(kind=NTM, **options):
    torch.manual_seed(1)
    machine = kind(4, 2, **(SMALL | options))
    with torch.no_grad():
        for parameter in machine.parameters():
            parameter.uniform_(-1, 1)
    return machine.eval()


def draw(*shape, seed=2):
    return torch.randn(*shape, 4, generator=torch.Generator().manual_seed(seed))


def assert_close(found, expected, limit):
    """Errors seen in float32: 4e-7; in float64: 1e-15."""
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.shape == tuple(other.shape)
        assert np.abs(one - other.detach().numpy()).max() < limit


# --- ONNX ------------------------------------------------------------------------------------------------------------


def test_onnx_of_the_whole_machine(tmp_path):
    """One file for every time, batch and lengths, one of each included."""
    onnxruntime = pytest.importorskip("onnxruntime", reason=ONNX)
    ntm = build(**RICH)
    (path,) = tapehead.export_model(ntm, tmp_path / "machine.onnx")
    session = onnxruntime.InferenceSession(str(path))
    assert [one.name for one in session.get_inputs()] == ["inputs", "lengths"]
    assert session.get_inputs()[0].shape == ["time", "batch", 4]
    for lengths in ([6, 3, 1], [1], [11, 40]):
        x = draw(max(lengths), len(lengths))
        y, state = ntm(x, lengths=torch.tensor(lengths))
        assert_close(session.run(None, {"inputs": x.numpy(), "lengths": np.array(lengths)}), [y, *state], 1e-6)


def test_onnx_of_one_step(tmp_path):
    """Steps from the start in the file beside it are the machine."""
    onnxruntime = pytest.importorskip("onnxruntime", reason=ONNX)
    ntm = build(initial_memory="random", initial_weightings="spread", num_heads=2)
    path, start = tapehead.export_model(ntm, tmp_path / "cell.onnx", step=True)
    session = onnxruntime.InferenceSession(str(path))
    x, y = draw(5, 3), []
    state = {name: np.repeat(part[None], 3, axis=0) for name, part in np.load(start).items()}
    for now in x.numpy():
        logits, *parts = session.run(None, {"inputs": now, **state})
        state = dict(zip(state, parts, strict=True))
        y.append(logits)
    expected, final = ntm(x)
    assert_close([np.stack(y), *state.values()], [expected, *final], 1e-6)


@pytest.mark.parametrize("options", [["copy.onnx"], ["copy.pt2", "--step"]])
def test_the_example_runs_graphs_without_tapehead(options, tmp_path, capsys, monkeypatch):
    """A trained machine of the zoo, on sequences longer than in training; no module of tapehead can be imported.

    The format is that of the file's name.
    """
    pytest.importorskip("onnxruntime", reason=ONNX)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        cli.main(["export", "copy-ntm-feedforward", "--tape", "64", "--out", *options])
    assert not ended.value.code
    assert capsys.readouterr().out == "\n".join([options[0], *["copy.start.npz"] * (len(options) > 1), ""])
    (tmp_path / "tapehead.py").write_text("raise ImportError('there is no tapehead here')")
    example = Path(__file__).parents[2] / "examples" / "run_exported.py"
    command = [sys.executable, "-W", "error", str(example), options[0], "--lengths", "1", "25"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.stderr == ""
    assert done.stdout == "length 1: 0 of 32 bits wrong\nlength 25: 0 of 800 bits wrong\n"


# --- torch.export ----------------------------------------------------------------------------------------------------


def test_pt2_of_the_whole_machine(tmp_path):
    ntm = build(dtype=torch.float64, num_heads=2)
    (path,) = tapehead.export_model(ntm, tmp_path / "machine.pt2")
    machine = torch.export.load(path).module()
    for lengths in (torch.tensor([6, 3, 1]), torch.tensor([1]), torch.tensor([11, 40])):
        x = draw(int(lengths.max()), len(lengths)).double()
        y, state = ntm(x, lengths=lengths)
        assert_close([part.numpy() for part in machine(x, lengths)], [y, *state], 1e-13)


@pytest.mark.filterwarnings("ignore:No complete tensor found:UserWarning")  # parameters are views of one tensor
@pytest.mark.parametrize(
    ("kind", "options"),  # a DNC sorts its slots by usage: another rounding may take another slot
    [(tapehead.DNC, {"backend": "reference"}), (tapehead.DNCCell, {}), (tapehead.PaperLSTM, {})],
)
def test_torch_export_save_of_other_models(kind, options, tmp_path):
    machine = kind(4, 2, dtype=torch.float64, **options).eval()
    x = (draw(3, 2) if kind is not tapehead.DNCCell else draw(2)).double()
    torch.export.save(torch.export.export(machine, (x,)), tmp_path / "saved.pt2")
    y, after = torch.export.load(tmp_path / "saved.pt2").module()(2 * x)
    expected, final = machine(2 * x)
    assert type(after) is type(final)
    assert_close([part.detach().numpy() for part in (y, *after)], [expected, *final], 1e-12)


@pytest.mark.filterwarnings("ignore:No complete tensor found:UserWarning")  # parameters are views of one tensor
@pytest.mark.parametrize("kind", [NTM, NTMCell])
def test_torch_export_save(kind, tmp_path):
    """The module as it is, with its named tuple of a state, also through a file."""
    machine = build(kind, dtype=torch.float64)
    x, state = draw(3, 2).double(), NTMState(*(part.detach() for part in machine.initial_state(2)))
    x = x if kind is NTM else x[0]
    torch.export.save(torch.export.export(machine, (x, state)), tmp_path / "saved.pt2")
    y, after = torch.export.load(tmp_path / "saved.pt2").module()(2 * x, state)
    assert isinstance(after, NTMState)
    expected, final = machine(2 * x, state)
    assert_close([part.detach().numpy() for part in (y, *after)], [expected, *final], 1e-13)


# --- safetensors -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, RICH | {"dtype": torch.float64}])
def test_safetensors_are_loaded_again(tmp_path, options):
    ntm = build(**options)
    (path,) = tapehead.export_model(ntm, tmp_path / "new folder" / "machine.safetensors")
    again = tapehead.load(path)
    assert again.config == ntm.config
    assert not again.training
    x = draw(5, 2)
    assert torch.equal(again(x)[0], ntm(x)[0])
    assert safetensors.torch.load_file(path).keys() == ntm.state_dict().keys()


def test_files_that_hold_no_machine(tmp_path):
    path = tmp_path / "machine.safetensors"
    for data in (b"", b"nothing", safetensors.torch.save({"output.weight": torch.zeros(2)})):
        path.write_bytes(data)
        with pytest.raises(ValueError, match="holds no machine that can be made again"):
            tapehead.load(path)
    tapehead.export_model(tapehead.PaperLSTM(2, 2), path)
    with pytest.raises(ValueError, match=r"the parameters of a PaperLSTM without its options, for load_state_dict"):
        tapehead.load(path)
    ntm = build()
    options = '{"input_size": 4, "output_size": 2}'
    path.write_bytes(safetensors.torch.save(dict(ntm.state_dict()), {"options": options}))
    with pytest.raises(ValueError, match="has other tensors than its machine"):
        tapehead.load(path)
    tapehead.export_model(ntm, path)
    with pytest.raises(ValueError, match=r"seed is 3, but .* holds one machine"):
        tapehead.load(path, seed=3)


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda path: tapehead.export_model(build(), path / "x.tflite"), "unknown format 'tflite'"),
        (
            lambda path: tapehead.export_model(build(), path / "x.safetensors", step=True),
            "safetensors holds parameters",
        ),
        (lambda path: tapehead.export_model(tapehead.PaperLSTM(2, 2), path / "x.pt2"), "PaperLSTM has no graph"),
        (lambda path: tapehead.export_model(build().half(), path / "x.pt2"), r"are torch.float16, but a machine"),
        (lambda path: tapehead.export_model(build().double(), path / "x.onnx"), r"onnxruntime has no softplus"),
        (lambda path: tapehead.export_model(build(), "/dev/null/x.safetensors"), "cannot write to /dev/null"),
    ],
)
def test_refusals(call, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        call(tmp_path)


def test_onnx_without_its_packages(tmp_path, monkeypatch):
    monkeypatch.setattr(write, "NEEDED", ("onnx_that_is_not_there",))
    with pytest.raises(ValueError, match=r"ONNX needs onnx_that_is_not_there: install tapehead\[onnx\]"):
        tapehead.export_model(build(), tmp_path / "x.onnx")
    assert not list(tmp_path.iterdir())
