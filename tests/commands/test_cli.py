"""The command line: what works, works; what cannot work is one sentence, exit code 2, and not a trace."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tapehead import cli, commands
from tapehead.arguments import COMMANDS
from tapehead.arguments.parsing import parse
from tapehead.commands.experiments import from_options
from tapehead.experiment import checkpoint, events
from tapehead.experiment.folder import read_config
from tapehead.experiment.loop import Trainer
from tapehead.paper.recipes import row_experiment
from tapehead.paper.tables import PAPER_TASKS, ROWS
from tapehead.registry import TASKS
from tapehead.tasks.copy import Copy

pytestmark = pytest.mark.usefixtures("one_thread")

TINY = ["--task-options", "length", "[1,3]", "width", "2"]
TINY += ["--model-options", "controller_size", "8", "memory_slots", "8", "memory_width", "4"]


@pytest.fixture(autouse=True)
def somewhere(tmp_path, monkeypatch):
    """Every test in an empty folder of its own, with small sizes to score and draw."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(Copy, "generalisation", ({"length": 2}, {"length": 5}))


def tapehead(*arguments):
    """The exit code of a command."""
    with pytest.raises(SystemExit) as stop:
        cli.main([str(argument) for argument in arguments])
    return stop.value.code


def python(*arguments, stdout):
    """This Python in a process of its own, with this tapehead."""
    environment = os.environ | {"PYTHONPATH": str(Path(cli.__file__).parents[1])}
    return subprocess.run(
        [sys.executable, *arguments], stdout=stdout, stderr=subprocess.PIPE, text=True, check=False, env=environment
    )


def everything(folder):
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in Path(folder).rglob("*")}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A population of two, trained by the command."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Copy, "generalisation", ({"length": 2}, {"length": 5}))
        assert tapehead("train", "copy", *TINY, "--episodes", 150, "--seeds", 2, "--out", folder) == 0
    return folder


@pytest.fixture
def run(trained, tmp_path):
    """A copy of it, to be harmed."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


# --- mistakes --------------------------------------------------------------------------------------------------------

MISTAKES = {
    "misspelt command": ("trian copy", "Did you mean 'train'"),
    "a command that is not there": ("fly", "unknown command 'fly'"),
    "an option for a command": ("--seed 3", "--seed"),
    "no task": ("train", "TASK"),
    "misspelt task": ("train copi", "Did you mean 'copy'"),
    "upper-case task": ("train COPY", "unknown task 'COPY'"),
    "two tasks": ("train copy ngrams", "ngrams"),
    "misspelt option": ("train copy --episods 5", "did you mean --episodes"),
    "another misspelt option": ("train copy --learning-rat 1", "did you mean --learning-rate"),
    "misspelt switch": ("train copy --no-early-stopp", "--no-early-stop"),
    "a value for a switch": ("train copy --no-early-stop yes", "yes"),
    "an option without a value": ("train copy --seed", "--seed"),
    "a seed that is a word": ("train copy --seed one", "one"),
    "a seed with a fraction": ("train copy --seed 1.5", "1.5"),
    "a negative seed": ("train copy --seed -1", "seed is -1"),
    "an enormous seed": ("train copy --seed 18446744073709551616", "2^64"),
    "a population past the last seed": ("train copy --seed 18446744073709551615 --seeds 2", "2^64"),
    "no seeds": ("train copy --seeds 0", "--seeds is 0"),
    "negative seeds": ("train copy --seeds -2", "--seeds is -2"),
    "seeds by the million": ("train copy --seeds 100000000", "at most 10,000"),
    "no episodes": ("train copy --episodes 0", "episodes is 0"),
    "negative episodes": ("train copy --episodes -5", "episodes is -5"),
    "episodes as a word": ("train copy --episodes many", "many"),
    "episodes with a fraction": ("train copy --episodes 1.5e0", "'1.5e0' is no whole number, such as 10000 or 1e4"),
    "more episodes than can be counted": (f"train copy --episodes {'9' * 30}", "under 2^31"),
    "a batch that no tensor can hold": (f"train copy --batch-size {'9' * 30}", "batch_size is 999"),
    "no batch": ("train copy --batch-size 0", "batch_size is 0"),
    "no learning rate": ("train copy --learning-rate 0", "learning_rate is 0"),
    "a negative learning rate": ("train copy --learning-rate -1e-4", "learning_rate is -0.0001"),
    "an infinite learning rate": ("train copy --learning-rate inf", "learning_rate is inf"),
    "a learning rate that is none": ("train copy --learning-rate nan", "learning_rate is nan"),
    "a learning rate past float32": ("train copy --learning-rate 1e300", "learning_rate is 1e+300"),
    "a learning rate that float32 rounds to nothing": ("train copy --learning-rate 1e-300", "float32 holds"),
    "a clip past float32": ("train copy --settings clip_at 1e39", "limit is 1e+39"),
    "an unknown controller": ("train copy --controller gru", "gru"),
    "an unknown model": ("train copy --model gru", "gru"),
    "an unknown recipe": ("train copy --recipe best", "best"),
    "an unknown backend": ("train copy --backend cuda", "must be one of auto, reference, cpu, gpu"),
    "a backend of another device": ("train copy --backend gpu", "backend 'gpu' cannot run this machine"),
    "a backend of another device for an LSTM": ("train copy --model lstm --backend gpu", "backend 'gpu' cannot run"),
    "an unknown device": ("train copy --device cdua", "--device is 'cdua'"),
    "a device of torch's that is none of ours": ("train copy --device meta", "--device is 'meta'"),
    "a device with a tail": ("train copy --device cuda:x", "--device is 'cuda:x'"),
    "a GPU that is not there": ("train copy --device cuda:63", "--device is 'cuda:63', but torch finds"),
    "an unknown task option": ("train copy --task-options lenght 3", "Did you mean 'length'"),
    "an option of another task": ("train copy --task-options order 3", "unknown setting of task 'order'"),
    "a task option without a value": ("train copy --task-options width", "--task-options"),
    "a length that is a word": ("train copy --task-options length long", "length is 'long'"),
    "a length of none": ("train copy --task-options length none", "length is None"),
    "a length of zero": ("train copy --task-options length 0", "length is 0"),
    "a length with a fraction": ("train copy --task-options length 2.5", "length is 2.5"),
    "a length range backwards": ("train copy --task-options length [5,2]", "length is 5 to 2"),
    "a length of three": ("train copy --task-options length [1,2,3]", "length is [1, 2, 3]"),
    "no width": ("train copy --task-options width 0", "width is 0"),
    "a width that is true": ("train copy --task-options width true", "width is True"),
    "a switch that is a word": ("train copy --task-options paper_channels maybe", "true or false"),
    "a bottomless list": (f"train copy --task-options length {'[' * 5000}", "length is"),
    "an object": ('train copy --task-options length {"a":1}', "length is"),
    "an N-gram order too large": ("train ngrams --task-options order 99", "order is 99"),
    "a word that is none of the choices": ("train ngrams --task-options scored some", "all or after_context"),
    "an unknown model option": ("train copy --model-options memory_slot 3", "Did you mean 'memory_slots'"),
    "no memory": ("train copy --model-options memory_slots 0", "memory_slots is 0"),
    "a negative width": ("train copy --model-options memory_width -1", "memory_width is -1"),
    "a memory with a fraction": ("train copy --model-options memory_slots 2.5", "memory_slots is 2.5"),
    "a bias that is a word": ("train copy --model-options forget_bias high", "forget_bias is 'high'"),
    "a bias without end": ("train copy --model-options forget_bias 1e999", "forget_bias is inf"),
    "a gate that is a number": ("train copy --model-options write_gate 7", "write_gate is 7"),
    "a clip of zero": ("train copy --model-options interface_clip 0", "interface_clip is 0"),
    "an unknown shift": ("train copy --model-options shift hard", "shift is 'hard'"),
    "a size that the task decides": ("train copy --model-options input_size 3", "'input_size'"),
    "a device as a model option": ("train copy --model-options device cuda", "'device'"),
    "a type as a model option": ("train copy --model-options dtype float16", "'dtype'"),
    "no layers": ("train copy --model lstm --model-options num_layers 0", "num_layers is 0"),
    "a memory for an LSTM": ("train copy --model lstm --model-options memory_slots 3", "'memory_slots'"),
    "a machine larger than the world": (
        "train copy --model-options controller_size 10000000",
        "at most 2147483648 are possible",
    ),
    "a number past all numbers": (f"train copy --model-options controller_size {'9' * 40}", "must be at most 16777216"),
    "no layers by path": ("train copy --model.name lstm --model.num-layers 0", "num_layers is 0"),
    "an unknown part": ("train copy --tsk.length 3", "Did you mean 'task'"),
    "an unknown setting of a part": ("train copy --training.episode 3", "Did you mean 'episodes'"),
    "a setting of another optimiser": ("train copy --optimiser.beta1 0.5", "unknown setting of optimiser 'beta1'"),
    "a setting without a value": ("train copy --task.length", "--task.length needs a value"),
    "a setting of another type": ("train copy --training.episodes many", "--training.episodes is 'many'"),
    "an unknown setting": ("train copy --settings optimizer adam", "Did you mean 'optimiser'"),
    "an unknown optimiser": ("train copy --settings optimiser sgd", "unknown optimiser 'sgd'"),
    "an unknown schedule": (
        "train copy --schedule.name linear",
        "Valid: constant, cosine, warmup-cosine. One from elsewhere is named",
    ),
    "an unknown clipping": ("train copy --clipping.kind nrm", "must be elementwise, norm or none"),
    "two forms of one option": ("train copy --episodes 5 --training.episodes 6", "--training.episodes was given twice"),
    "two forms of a setting": ("train copy --settings attempts 2 --restarts.attempts 3", "was given twice"),
    "two models": ("train copy --model lstm --model.name ntm", "--model.name was given twice"),
    "two tasks by path": ("train copy --task.name ngrams", "the task is copy: give that one instead"),
    "both early stops": ("train copy --early-stop --no-early-stop", "give one of them"),
    "a recipe for what has none": ("train parity --recipe tuned", "has no row in the paper: leave it out"),
    "a module that is not there": ("train nowhere:Task", "needs a module 'nowhere', which is not on the path"),
    "a class that is not there": ("train json:Task", "'json:Task' is not there: give module:Class"),
    "a class that is no task": ("train collections:Counter", "collections:Counter is no Task"),
    "a class that is no model": ("train copy --model collections:Counter", "collections:Counter is no model"),
    "a TOML file that is not there": ("train nowhere.toml", "nowhere.toml cannot be read (No such file"),
    "a run's file that is not there": ("train nowhere/config.json", "holds no run"),
    "no run to score": ("eval", "RUN"),
    "a run that is not there": ("eval nowhere", "holds no run"),
    "a folder without a run": ("eval .", "holds no run"),
    "scores without end": (f"eval x --episodes {'9' * 30}", "under 2^31"),
    "a record that is a folder": ("zoo add .", "is a folder, not a plain file"),
    "a misspelt option of eval": ("eval x --episode 3", "did you mean --episodes"),
    "nothing to score": ("eval x --episodes 0", "--episodes is 0"),
    "a device for eval that is not there": ("eval x --device cuda:99", "--device is 'cuda:99'"),
    "pictures of a run that is not there": ("figures nowhere", "holds no run"),
    "pictures of a word": ("figures nowhere --seed first", "first"),
    "an unknown task to explain": ("tasks sorting", "unknown task 'sorting'"),
    "presets with something": ("presets copy", "copy"),
    "doctor with something": ("doctor --fix", "--fix"),
    "a benchmark of nothing": ("bench --experiment nowhere.toml", "nowhere.toml cannot be read"),
    "a benchmark without rounds": ("bench --rounds 0", "--rounds is 0"),
    "a figure that is not there": ("figures nowhere --figure curve", "holds no run"),
}


def refused(capsys, arguments, message):
    """Exit code 2, at most two lines, and nothing written here."""
    capsys.readouterr()
    before = everything(".")
    assert tapehead(*arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert 1 <= len(said.err.splitlines()) <= 2
    assert said.err.startswith("tapehead: ")
    assert "Traceback" not in said.err
    assert message in said.err
    assert everything(".") == before


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence_and_leaves_nothing(mistake, capsys):
    line, message = MISTAKES[mistake]
    refused(capsys, line.split(), message)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_gpu_that_is_not_there(capsys):
    refused(capsys, ["train", "copy", "--device", "cuda"], "torch finds no CUDA device here: use --device cpu")


@pytest.mark.parametrize("out", ["file", "file/run", "file/a/b", "n" * 300, "a/" + "n" * 300, "full"])
def test_a_folder_that_cannot_be_the_run(out, capsys):
    Path("file").write_text("mine")
    Path("full").mkdir()
    Path("full/thesis").write_text("years of work")
    refused(capsys, ["train", "copy", *TINY, "--out", out], out[:200])


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no /proc here")
def test_a_folder_that_nobody_can_write(capsys):
    refused(capsys, ["train", "copy", *TINY, "--out", "/proc/run"], "cannot write to /proc/run")


def harmed(capsys, run, arguments, message):
    before = everything(run)
    refused(capsys, arguments, message)
    assert everything(run) == before


def again(run, *changes):
    return ["train", "copy", *TINY, "--episodes", 150, "--seeds", 2, "--out", run, *changes]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("--episodes", 120), "episodes = 150, not 120"),
        (("--episodes", 200), "cannot go on exactly to 200: the Cosine schedule"),
        (("--seeds", 3), "seeds = [0, 1], not [0, 1, 2]"),
        (("--learning-rate", 0.5), "not 0.5"),
        (("--model", "lstm", "--model-options", "hidden_size", 4), "not lstm"),
        (("--recipe", "paper"), "holds a run with"),
    ],
)
def test_the_folder_of_another_run(capsys, run, change, message):
    harmed(capsys, run, again(run, *change), message)


def test_a_damaged_configuration(capsys, run):
    text = (run / "config.json").read_text()
    (run / "config.json").write_text(text.replace('"episodes": 150', '"episodes": 950'))
    for arguments in (again(run), ["eval", run], ["figures", run]):
        harmed(capsys, run, arguments, "config.json is damaged")


def test_all_checkpoints_damaged(capsys, run):
    for path in checkpoint.folders(run / "checkpoints"):
        data = bytearray((path / "state.safetensors").read_bytes())
        data[-1] ^= 1
        (path / "state.safetensors").write_bytes(data)
    for arguments in (again(run), ["eval", run], ["figures", run]):
        harmed(capsys, run, arguments, "does not match its SHA-256")


def test_no_checkpoint_yet(capsys, run):
    shutil.rmtree(run / "checkpoints")
    for arguments in (["eval", run], ["figures", run]):
        harmed(capsys, run, arguments, "no checkpoint yet")


def test_checkpoints_of_another_configuration(capsys, run, tmp_path):
    other = tmp_path / "other"
    assert tapehead("train", "copy", *TINY, "--episodes", 100, "--out", other) == 0
    shutil.rmtree(run / "checkpoints")
    shutil.copytree(other / "checkpoints", run / "checkpoints")
    for arguments in (again(run), ["eval", run], ["figures", run]):
        harmed(capsys, run, arguments, "belong to another experiment")


def test_a_seed_that_is_not_in_the_run(capsys, run):
    harmed(capsys, run, ["figures", run, "--seed", 5], "seed 5 is not in")


def test_a_backend_that_cannot_score(capsys, run):
    harmed(capsys, run, ["eval", run, "--backend", "fast"], "must be one of auto")
    harmed(capsys, run, ["eval", run, "--backend", "gpu"], "cannot run this machine")


def test_a_full_disk_in_the_middle(capsys, monkeypatch, tmp_path):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(events, "append", full)
    assert tapehead("train", "copy", *TINY, "--episodes", 100, "--out", tmp_path / "run") == 2
    said = capsys.readouterr().err.splitlines()
    assert "No space left on device" in said[-1]
    assert not [line for line in said if "Traceback" in line]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signals_outside_training_end_the_program_with_their_code(number, code, monkeypatch, capsys):
    before = signal.getsignal(number)
    monkeypatch.setattr(commands, "work_of", lambda command: lambda: os.kill(os.getpid(), number) or time.sleep(5))
    assert tapehead("presets") == code
    assert signal.getsignal(number) == before
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_in_training_save_and_say_so(number, monkeypatch, capsys, tmp_path):
    original = Trainer._launch

    def signalled(self, *given):
        os.kill(os.getpid(), number)
        return original(self, *given)

    monkeypatch.setattr(Trainer, "_launch", signalled)
    arguments = ("train", "copy", *TINY, "--episodes", 150, "--out", tmp_path / "run")
    assert tapehead(*arguments) == 128 + number
    assert f"saved in {tmp_path / 'run'}. The same command goes on from there." in capsys.readouterr().err
    monkeypatch.undo()
    monkeypatch.setattr(Copy, "generalisation", ({"length": 2},))
    assert tapehead(*arguments) == 0
    assert "Resumed at episode 100." in capsys.readouterr().err


# --- what works ------------------------------------------------------------------------------------------------------


def test_train_says_what_it_did(trained, tmp_path, capsys):
    assert tapehead("train", "copy", *TINY, "--episodes", 120, "--seed", 5, "--out", tmp_path / "run") == 0
    said = capsys.readouterr()
    assert re.match(r"copy-ntm-lstm/tuned: [\d,]+ parameters, seed 5, \w+ backend on cpu\.", said.err)
    assert "120 of 120 episodes, " in said.err
    assert all(line.isprintable() for line in said.err.splitlines())  # plain lines: no escape codes
    assert "copy: not solved" in said.out
    assert "Length 2" in said.out
    assert "Length 5" in said.out
    pictures = [Path(line.strip()) for line in said.out.split("Figures:")[1].splitlines() if line.strip()]
    assert len(pictures) >= 2
    assert all(picture.stat().st_size for picture in pictures)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["seeds"] == [5]
    assert result["episodes"] == 120
    assert set(result["sha256"]) == {"weights", "delivered_weights", "optimiser", "metrics"}


def test_the_same_command_again_says_that_it_is_finished(run, capsys):
    metrics, weights = (run / "metrics.jsonl").read_bytes(), (run / "result.json").read_bytes()
    assert tapehead(*again(run)) == 0
    said = capsys.readouterr()
    assert f"This run is finished (cpu backend); its results are in {run}." in said.err
    assert "0 of 2 seeds solved" in said.out
    assert (run / "metrics.jsonl").read_bytes() == metrics
    assert (run / "result.json").read_bytes() == weights


def test_a_curriculum_and_its_end():
    options = ("--curriculum", "blanks", "0.5", "--settings", "curriculum_share", "0.5")
    assert tapehead("train", "copy", *TINY, "--out", "run", "--episodes", 200, *options) == 0
    experiment = read_config(Path("run"))
    assert experiment.curriculum.options == {"blanks": 0.5}
    assert experiment.curriculum.share == 0.5


def test_the_default_folder_is_the_same_for_the_same_settings(capsys):
    for _ in range(2):
        assert tapehead("train", "copy", *TINY, "--episodes", 50) == 0
    (folder,) = Path("runs").iterdir()
    assert folder.name.startswith("copy-ntm-lstm-tuned-")
    assert "This run is finished" in capsys.readouterr().err


def asked(*words):
    """The experiment of `tapehead train` with these words."""
    return from_options(parse(["train", *map(str, words)]))


@pytest.mark.parametrize("task", PAPER_TASKS)
@pytest.mark.parametrize("machine", [("--controller", "feedforward"), ("--controller", "lstm"), ("--model", "lstm")])
def test_every_row_makes_a_run(task, machine):
    """Not trained: that would take long."""
    for recipe in ("tuned", "paper"):
        experiment = asked(task, *machine, "--recipe", recipe)
        assert experiment.recipe in {f"{row.name}/{recipe}" for row in ROWS}
        model = experiment.build()
        assert (model.input_size, model.output_size) == (experiment.task.input_size, experiment.task.output_size)


def test_options_of_task_and_model_arrive():
    words = ["copy", "--task-options", "length", "7", "paper_channels", "True", "--model-options"]
    words += ["interface_clip", "20", "read_heads", "None", "initial_reads", "learned", "forget_bias", "0.5"]
    experiment = asked(*words)
    assert (experiment.task.length, experiment.task.paper_channels) == (7, True)
    given = {"interface_clip": 20, "read_heads": None, "initial_reads": "learned", "forget_bias": 0.5}
    assert experiment.model.options | given == experiment.model.options


def test_a_form_of_a_task_that_is_not_in_the_paper_has_its_own_recipe():
    experiment = asked("repeat-copy", "--task-options", "count", "pulses")
    assert experiment == row_experiment("repeat-copy-pulses-ntm-lstm") == asked("repeat-copy", "--task.count", "pulses")
    assert experiment.optimiser != row_experiment("repeat-copy-ntm-lstm").optimiser


# --- forms of the same experiment ------------------------------------------------------------------------------------


FORMS = {
    "--model lstm --model-options hidden_size 5": "--model.name lstm --model.hidden-size 5",
    "--controller feedforward": "--model.controller feedforward",
    "--episodes 1500 --batch-size 3": "--training.episodes 1500 --training.batch_size=3",
    "--early-stop": "--training.early-stop true",
    "--no-early-stop": "--training.early-stop false",
    "--learning-rate 0.01": "--optimiser.learning-rate 0.01",
    "--backend reference --device cpu": "--place.backend reference --place.device cpu",
    "--task-options width 6 length [1,5]": "--task.width 6 --task.length [1,5]",
    "--model-options memory_slots 64": "--model.memory-slots 64",
    "--settings optimiser adam": "--optimiser.name adam",
    "--settings schedule constant": "--schedule.name constant",
    "--settings final_rate 0.5": "--schedule.final 0.5",
    "--settings clip norm clip_at 1": "--clipping.kind norm --clipping.limit 1.0",
    "--settings slots [21,48] average 0.5": "--training.slots [21,48] --training.average 0.5",
    "--settings curriculum_share 0.5": "--curriculum.share 0.5",
    "--curriculum density [0.1,0.9]": '--curriculum.options {"blanks":0.05,"density":[0.1,0.9]}',
    "--validation length 30 --settings validation_sequences 9 passing_bits 0.5": (
        '--validation.sizes {"length":30} --validation.sequences 9 --validation.below-bits 0.5'
    ),
    "--settings attempts 3 patience 5000 hopeful_bits 2": (
        "--restarts.attempts 3 --restarts.after 5000 --restarts.above-bits 2"
    ),
}


@pytest.mark.parametrize("flags", FORMS)
def test_a_flag_equals_its_path(flags):
    one, other = asked("copy", *flags.split()), asked("copy", *FORMS[flags].split())
    assert one == other
    assert (one != asked("copy")) or flags == "--no-early-stop"  # no recipe stops early


def test_seeds():
    assert asked("copy").seeds == (0,)
    assert asked("copy", "--seed", 7).seeds == (7,)
    assert asked("copy", "--seed", 7, "--seeds", 3).seeds == (7, 8, 9)
    assert asked("copy", "--seeds", 2).seeds == (0, 1)


def test_the_old_name_of_a_recipe_works():
    assert asked("copy", "--recipe", "sure") == asked("copy", "--recipe", "tuned") == asked("copy")
    assert asked("copy", "--recipe", "paper") != asked("copy")


def test_a_task_without_a_row_has_general_settings():
    assert asked("parity").recipe == "general"
    assert asked("parity", "--controller", "feedforward").model.options["controller"] == "feedforward"
    assert asked("parity") == asked("tapehead.tasks.parity:Parity")
    assert asked("tapehead.tasks.copy:Copy") == asked("copy")  # whose row it finds


FILED = ["copy", *TINY, "--episodes", 120, "--seed", 3, "--optimiser.name", "adam", "--optimiser.beta1", 0.5]


def test_a_written_file_trains_the_same(capsys):
    assert tapehead("train", *FILED, "--write-config", "new/place/mine.toml") == 0
    assert Path(capsys.readouterr().out.strip()).exists()
    assert tapehead("train", *FILED, "--write-config", "mine.toml") == 0
    assert capsys.readouterr().out == "mine.toml\n"
    assert not Path("runs").exists()
    assert asked("mine.toml") == asked(*FILED)
    assert asked("mine.toml").hash == asked(*FILED).hash
    assert tapehead("train", *FILED) == 0
    (folder,) = Path("runs").iterdir()
    assert tapehead("train", "mine.toml") == 0
    assert "This run is finished" in capsys.readouterr().err  # so it is the same folder
    assert list(Path("runs").iterdir()) == [folder]


def test_a_runs_configuration_repeats_it(trained, capsys):
    result = json.loads((trained / "result.json").read_bytes())
    for number, what in enumerate((trained / "config.json", trained)):
        assert tapehead("train", what, "--out", f"again{number}") == 0
        again = json.loads(Path(f"again{number}/result.json").read_bytes())
        assert again["sha256"] == result["sha256"]
        assert again["generalisation"] == result["generalisation"]


def test_a_file_is_changed_one_by_one(trained):
    other = asked(trained / "config.json", "--seed", 5, "--optimiser.name", "adam", "--curriculum", "density", "[0,1]")
    before = read_config(trained)
    assert other.seeds == (5,)
    assert type(other.optimiser).__name__ == "Adam"
    assert other.optimiser.learning_rate == before.optimiser.learning_rate
    assert other.curriculum.options == {"blanks": 0.05, "density": (0.0, 1.0)}
    assert other.task == before.task


@pytest.mark.parametrize("flag", ["--model lstm", "--controller lstm", "--recipe paper"])
def test_what_goes_with_a_task_does_not_go_with_a_file(trained, capsys, flag):
    refused(capsys, ["train", trained / "config.json", *flag.split()], f"{flag.split()[0]} goes with a task's name")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("task = ", "wrong.toml is not TOML (Invalid value"),
        ("\x00", "wrong.toml is not TOML"),
        ("[training]\nepisodes = 5", "wrong.toml has no task: give one"),
        ("task = 'copy'", "task is 'copy', but it must be a table of names and values"),
        ("[task]\nlength = 5", "task has no name: give one"),
        ("[task]\nname = 5", "task has no name: give one"),
        ("[task]\nname = 'copi'", "Did you mean 'copy'"),
        ("[task]\nname = 'copy'\nlenght = 5", "unknown setting of task copy 'lenght'. Did you mean 'length'"),
        ("[task]\nname = 'copy'\nlength = 0", "length is 0"),
        ("[task]\nname = 'copy'\n[trainig]\nepisodes = 5", "Did you mean 'training'"),
        ("[task]\nname = 'copy'\n[training]\nepisode = 5", "Did you mean 'episodes'"),
        ("[task]\nname = 'copy'\n[training]\nepisodes = 'many'", "episodes is 'many'"),
        ("[task]\nname = 'copy'\n[training]\nepisodes = 2026-01-01", "episodes is datetime.date(2026, 1, 1)"),
        ("seeds = [1, 1]\n[task]\nname = 'copy'", "seeds are [1, 1]"),
        ("seeds = 3\n[task]\nname = 'copy'", "seeds is 3, but it must be a list"),
        ("[task]\nname = 'copy'\n[model]\nname = 'gru'", "unknown model 'gru'"),
        ("[task]\nname = 'copy'\n[model]\nname = 3", "name is 3"),
        ("[task]\nname = 'copy'\n[model]\nmemory_slot = 3", "Did you mean 'memory_slots'"),
        ("[task]\nname = 'copy'\n[optimiser]\nname = 'adam'\ndecay = 0.5", "unknown setting of optimiser adam 'decay'"),
        ("[task]\nname = 'copy'\n[optimiser]\nlearning_rate = nan", "learning_rate is nan"),
        ("[task]\nname = 'copy'\n[place]\nbackend = 'fast'", "must be one of auto"),
        ("[task]\nname = 'copy'\n[place]\ndevice = 'cdua'", "'cdua'"),
        ("[task]\nname = 'copy'\n[validation]\nsizes = { items = 3 }", "unknown size of copy 'items'"),
        ("[task]\nname = 'copy'\n[evaluation]\nsizes = [{ items = 3 }]", "unknown size of copy 'items'"),
        ("[task]\nname = 'copy'\n[curriculum]\noptions = { items = 3 }", "'items'"),
        ("[task]\nname = 'copy'\n[restarts]\nattempts = 3", "nothing says which seeds to restart"),
        ("[task]\nname = 'copy'\n[training]\nslots = [5, 4]", "slots are (5, 4)"),
        ("[task]\nname = 'copy'\n[training]\nslots = [5, 999]", "the tape has 128"),
    ],
)
def test_a_wrong_file_is_one_sentence(text, message, capsys):
    Path("wrong.toml").write_text(text)
    refused(capsys, ["train", "wrong.toml"], message)


def test_a_file_that_is_no_text(capsys):
    Path("wrong.toml").write_bytes(b"\xff\xfe")
    refused(capsys, ["train", "wrong.toml"], "wrong.toml is not TOML")
    Path("folder.toml").mkdir()
    refused(capsys, ["train", "folder.toml"], "folder.toml cannot be read (Is a directory)")


# --- other commands --------------------------------------------------------------------------------------------------


def test_bench_times_an_experiment(capsys):
    assert tapehead("train", "copy", *TINY, "--batch-size", 2, "--seeds", 3, "--write-config", "mine.toml") == 0
    assert tapehead("bench", "--experiment", "mine.toml", "--rounds", 2, "--out", "results") == 0
    (path,) = Path("results").iterdir()
    assert path.name.endswith("-mine.json")
    record = json.loads(path.read_text())
    (row,) = record["rows"]
    assert (row["system"], row["controller"], row["batch"], row["seeds"]) == ("ntm on copy, cpu", "lstm", 2, 3)
    assert row["episodes_per_second"] == pytest.approx(6 / row["seconds"]["median"])
    assert record["experiment"] == asked("mine.toml").to_plain()
    out = capsys.readouterr().out
    assert "ntm on copy, cpu" in out
    assert "copy-ntm-lstm/tuned" in out


def test_eval_scores_as_the_run_did(run, capsys):
    assert tapehead("eval", run, "--json") == 0
    scored = json.loads(capsys.readouterr().out)  # and nothing else
    assert scored["generalisation"] == json.loads((run / "result.json").read_text())["generalisation"]
    assert tapehead("eval", run) == 0
    assert "median bits" in capsys.readouterr().out
    before = everything(run)
    assert tapehead("eval", run, "--episodes", 10, "--backend", "reference") == 0
    assert everything(run) == before


def test_figures_draws_only_those_asked_for(run, capsys):
    shutil.rmtree(run / "figures")
    assert tapehead("figures", run, "--figure", "answers") == 0
    assert {Path(line).name for line in capsys.readouterr().out.split()} == {"answers.svg", "answers.png"}
    refused(capsys, ["figures", run, "--figure", "anwers"], "unknown figure 'anwers'. Did you mean 'answers'")


def test_figures_draws(run, capsys):
    shutil.rmtree(run / "figures", ignore_errors=True)
    (run / "metrics.jsonl").unlink()  # the checkpoint has them too
    assert tapehead("figures", run, "--seed", 1) == 0
    pictures = capsys.readouterr().out.split()
    assert {Path(picture).suffix for picture in pictures} == {".svg", ".png"}
    assert all(Path(picture).stat().st_size for picture in pictures)


def test_presets_compares_with_the_paper(capsys):
    assert tapehead("presets") == 0
    out = capsys.readouterr().out
    lines = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    for row in ROWS:
        assert f"{row.printed:,}" in lines[row.name]
        if row.machine == "lstm" and row.task != "priority-sort":
            assert "exact" in lines[row.name]
    assert "348,424" in lines["priority-sort-lstm"]
    assert "-36,000 *" in lines["priority-sort-lstm"]
    assert "two digits swapped" in out


@pytest.mark.parametrize("task", [None, *TASKS])
def test_tasks_explains(task, capsys):
    assert tapehead("tasks", *([task] if task else [])) == 0
    out = capsys.readouterr().out
    for name in TASKS:
        assert (f"\n{name}   (" in "\n" + out) == (task in (None, name))
    assert "mask" in out
    assert "targets" in out


def test_doctor_finds_everything_in_order(capsys):
    assert tapehead("doctor") == 0
    out = capsys.readouterr().out
    assert "Everything is in order." in out
    assert "FAIL" not in out
    assert everything(".") == {}


def test_doctor_says_what_is_wrong(capsys, monkeypatch):
    from tapehead.commands import doctor

    def broken():
        raise RuntimeError("it fell off")

    monkeypatch.setitem(doctor.CHECKS, "agreement", broken)
    assert tapehead("doctor") == 1
    assert "FAIL agreement: RuntimeError: it fell off" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["--version"], ["tran"], ["train", "--sed"]])
def test_help_and_mistakes_do_not_wait_for_torch(arguments):
    code = "import sys; from tapehead import cli\ntry: cli.main(sys.argv[1:])\nexcept SystemExit: pass\n"
    code += "slow = {'torch', 'numpy', 'numba', 'matplotlib'} & set(sys.modules)\nassert not slow, slow"
    done = python("-c", code, *arguments, stdout=subprocess.PIPE)
    assert done.returncode == 0, done.stderr
    assert (done.stdout + done.stderr).strip()


def test_help_names_the_commands_and_the_flags(capsys):
    assert tapehead("--help") == 0
    out = capsys.readouterr().out
    assert all(name in out for name in COMMANDS)
    assert tapehead("train", "--help") == 0
    out = capsys.readouterr().out
    flags = "--seed --seeds --episodes --no-early-stop --out --controller --backend --device"
    assert all(flag in out for flag in flags.split())


def test_version(capsys):
    assert tapehead("--version") == 0
    assert re.fullmatch(r"tapehead \d+\.\d+\.\d+\S*\n", capsys.readouterr().out)


def test_a_reader_that_goes_away_is_no_error():
    reading, writing = os.pipe()
    os.close(reading)
    done = python("-m", "tapehead.cli", "tasks", stdout=writing)
    os.close(writing)
    assert done.returncode == 1
    assert done.stderr == ""
