"""How commands end when something breaks: memory, disk, terminal, signals, and our own bugs."""

import io
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from tapehead import cli, commands, signals
from tapehead.experiment import checkpoint, run
from tapehead.experiment.config import Experiment
from tapehead.experiment.loop import Trainer
from tapehead.tasks.copy import Copy

pytestmark = pytest.mark.usefixtures("one_thread")

TINY = ["train", "copy", "--episodes", "150", "--task-options", "length", "[1,3]", "width", "2"]
TINY += ["--model-options", "controller_size", "8", "memory_slots", "8", "memory_width", "4", "--out"]


@pytest.fixture(autouse=True)
def somewhere(tmp_path, monkeypatch):
    """Every test in an empty folder of its own, with a small size to score and draw."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Copy, "generalisation", ({"length": 2},))


def tapehead(*arguments):
    """The exit code of a command."""
    with pytest.raises(SystemExit) as stop:
        cli.main([str(argument) for argument in arguments])
    return stop.value.code


def child(code, *arguments, shell="", **environment):
    """A program in a process of its own, which can end as processes do; `shell` is put behind its command."""
    environment = os.environ | {"PYTHONPATH": str(Path(cli.__file__).parents[1])} | environment
    code = f"import atexit, os, resource, signal, sys\nfrom tapehead import cli, commands\n{code}"
    command = ["sh", "-c", f'exec "$@" {shell}', "sh", sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=200)


def behaves(monkeypatch, work):
    """Every command does this instead of its work."""
    monkeypatch.setattr(commands, "work_of", lambda command: work)


# --- memory ----------------------------------------------------------------------------------------------------------


LITTLE_MEMORY = """
import tapehead.experiment.run
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (400 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
cli.main()
"""


@pytest.mark.parametrize(
    "option",
    [
        ("--batch-size", "6000000"),
        ("--task-options", "length", "6000000"),
    ],
)
def test_too_little_memory_is_one_sentence_and_leaves_nothing(option, tmp_path):
    done = child(
        LITTLE_MEMORY, "train", "copy", "--backend", "reference", "--out", "new/run", *option, OMP_NUM_THREADS="1"
    )
    assert done.returncode == 2, done.stderr
    *announced, sentence = done.stderr.splitlines()
    assert len(announced) <= 1
    assert sentence.startswith("tapehead: out of memory")
    assert "--batch-size" in sentence
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 1 GiB"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ],
)
def test_memory_that_ends_after_the_training_leaves_the_checkpoint(error, monkeypatch, capsys):
    def broken(*arguments, **options):
        raise error

    monkeypatch.setattr(run, "score", broken)
    assert tapehead(*TINY, "run") == 2
    sentence = capsys.readouterr().err.splitlines()[-1]
    assert sentence.startswith("tapehead: out of memory")
    assert ("(20.00 GiB more were asked for)" in sentence) == isinstance(error, torch.OutOfMemoryError)
    assert sentence.endswith("; what was saved before is in run.")
    assert checkpoint.folders(Path("run/checkpoints"))[0].name == "step-000000150"


def test_a_folder_that_was_there_stays_when_training_fails(monkeypatch, capsys):
    def broken(*arguments):
        raise MemoryError

    Path("there").mkdir()
    monkeypatch.setattr(Trainer, "_launch", broken)
    assert tapehead(*TINY, "there") == 2
    assert (Path("there") / "config.json").exists()
    assert tapehead(*TINY, "runs/new") == 2
    assert not Path("runs").exists()


# --- disk, terminal, pipes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(28, "No space left on device"), "cannot read or write a file (No space left on device)"),
        (OSError(13, "Permission denied", "x[/b]"), "cannot read or write x[/b] (Permission denied)"),
        (OSError("strange"), "cannot read or write a file (strange)"),
    ],
)
def test_a_file_that_cannot_be_written_is_named_if_it_has_a_name(error, says, monkeypatch, capsys):
    def broken():
        raise error

    behaves(monkeypatch, broken)
    assert tapehead("presets") == 2
    assert capsys.readouterr().err.startswith(f"tapehead: {says}: ")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
@pytest.mark.parametrize("command", ["--version", "--help"])
def test_output_that_cannot_be_written(command):
    done = child("cli.main()", command, shell=">/dev/full")
    assert done.returncode == 2
    assert done.stderr.startswith("tapehead: cannot read or write a file (No space left on device)")
    assert len(done.stderr.splitlines()) == 1
    assert child("cli.main()", command, shell="2>/dev/full").returncode == 0
    assert child("cli.main()", "fly", shell="2>/dev/full").returncode == 2


@pytest.mark.parametrize("shell", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_error_and_no_file_takes_their_place(shell):
    code = "try: cli.main(['--version'])\nexcept SystemExit as stop: assert stop.code == 0\n"
    code += "with open('file', 'w') as file: assert file.fileno() > 2\n"
    code += "sys.stdout.write('x'); sys.stdout.flush(); sys.stderr.write('x')"
    assert child(code, shell=shell).returncode == 0


def test_training_does_not_need_its_streams(tmp_path):
    little = [word if word != "150" else "3" for word in TINY]
    done = child("cli.main()", *little, "run", "--backend", "reference", shell=">&- 2>&-", OMP_NUM_THREADS="1")
    assert done.returncode == 0
    assert (tmp_path / "run" / "result.json").exists()


class Gone(io.StringIO):
    """A terminal that was closed, or a pipe that no process reads."""

    def __init__(self, terminal):
        super().__init__()
        self.terminal = terminal

    def isatty(self):
        return self.terminal

    def write(self, text):
        raise OSError(5, "Input/output error")

    def fileno(self):
        raise OSError(9, "Bad file descriptor")


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # the bar's own thread
def test_a_terminal_that_is_gone_does_not_end_the_run(terminal, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Gone(terminal))
    assert tapehead(*TINY, "run") == 0
    assert Path("run/result.json").exists()


def test_names_with_square_brackets_are_no_markup(capsys):
    assert tapehead(*TINY, "r[/a][red]") == 0
    assert "  r[/a][red]/figures/" in capsys.readouterr().out
    assert tapehead(*TINY, "r[/a][red]") == 0
    assert "its results are in r[/a][red]." in capsys.readouterr().err


def test_streams_without_unicode(monkeypatch, capsys):
    assert tapehead(*TINY, "r\u00e9sum\u00e9") == 0
    raw = io.BytesIO()
    with io.TextIOWrapper(raw, encoding="ascii") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert tapehead(*TINY, "r\u00e9sum\u00e9") == 0
        stream.flush()
        text = raw.getvalue().decode("ascii")
    assert "  r?sum?/figures/" in text
    assert "| Length 2" in text


def test_help_and_mistakes_without_unicode():
    for command in (("--help",), ("train", "--help")):
        done = child("cli.main()", *command, PYTHONIOENCODING="ascii")
        assert done.returncode == 0, done.stderr
        assert "train" in done.stdout
    done = child("cli.main()", "train", "copy", "--episods", "3", PYTHONIOENCODING="ascii")
    says = "tapehead: unknown option --episods of tapehead train; did you mean --episodes? See tapehead train --help.\n"
    assert (done.returncode, done.stderr) == (2, says)


def test_help_on_a_terminal_of_one_column():
    done = child("cli.main()", "--help", COLUMNS="1")
    assert done.returncode == 0
    assert "doctor" in done.stdout


# --- our own bugs ----------------------------------------------------------------------------------------------------


def test_a_bug_is_one_line_and_a_traceback_on_request(monkeypatch, capsys):
    made = {}
    source = "def broken():\n    raise KeyError('what\\never')"
    exec(compile(source, commands.__file__, "exec"), made)  # a line of the package
    behaves(monkeypatch, made["broken"])
    monkeypatch.delenv("TAPEHEAD_DEBUG", raising=False)
    assert tapehead("presets") == 1
    line = capsys.readouterr().err
    assert line.startswith("tapehead: internal error (KeyError: 'what")
    assert line.endswith(": please report it; set TAPEHEAD_DEBUG=1 for the traceback.\n")
    assert line.count("\n") == 1
    monkeypatch.setenv("TAPEHEAD_DEBUG", "1")
    assert tapehead("presets") == 1
    shown = capsys.readouterr().err
    assert shown.startswith("Traceback")
    assert shown.endswith(line)


def test_an_error_in_code_from_outside_names_its_line(monkeypatch, capsys):
    def broken():
        raise KeyError("mine")

    behaves(monkeypatch, broken)
    assert tapehead("presets") == 2
    line = broken.__code__.co_firstlineno + 1
    expected = f"tapehead: KeyError: 'mine' (test_cli_endings.py, line {line}); set TAPEHEAD_DEBUG=1 for the traceback."
    assert capsys.readouterr().err == f"{expected}\n"


@pytest.mark.parametrize("rest", ["", ', "config": 3', ', "config": {"task": "copy"}'])
def test_a_record_that_lacks_what_it_should_hold(rest, capsys):
    Path("record.json").write_text(f'{{"kind": "tapehead confirmation"{rest}}}')
    assert tapehead("zoo", "add", "record.json") == 2
    assert capsys.readouterr().err.startswith("tapehead: record.json is damaged")


def test_a_setting_whose_value_is_the_word_none():
    assert tapehead(*TINY, "run", "--settings", "clip", "none") == 0
    assert '"kind": "none"' in Path("run/config.json").read_text()


# --- signals ---------------------------------------------------------------------------------------------------------

NUMBERS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_while_starting_ends_the_process_without_a_word(number):
    """Also where the exception of a signal would be lost: in the import of a library."""
    code = f"commands.import_module = lambda name: os.kill(os.getpid(), {number}) or sys.exit(7)\n"
    done = child(code + "cli.main()", "presets")
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, "", "")


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_at_the_end_ends_the_process_without_a_word(number):
    code = f"atexit.register(lambda: os.kill(os.getpid(), {number}))\ncli.main()"
    done = child(code, "--version")
    assert (done.returncode, done.stderr) == (-number, "")


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_whose_exception_a_library_turns_into_its_own(number, monkeypatch, capsys):
    def compile_something():
        try:
            os.kill(os.getpid(), number)
            time.sleep(5)
        except BaseException:
            raise RuntimeError("lowering failed") from None

    behaves(monkeypatch, compile_something)
    assert tapehead("presets") == 128 + number
    assert capsys.readouterr().err == ""


def test_a_signal_whose_exception_a_library_swallows(monkeypatch, capsys):
    def compile_something():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
        except BaseException:
            return 0

    behaves(monkeypatch, compile_something)
    assert tapehead("presets") == 143


def test_ignored_signals_stay_ignored(monkeypatch, capsys):
    """As under nohup."""
    original = Trainer._launch

    def signalled(self, *given):
        os.kill(os.getpid(), signal.SIGHUP)
        return original(self, *given)

    monkeypatch.setattr(Trainer, "_launch", signalled)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert tapehead(*TINY, "run") == 0
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def in_a_thread(work):
    """What a function returns that runs in a thread of its own."""
    results = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join()
    return results[0]


def test_training_in_a_thread_leaves_signals_alone(capsys):
    handlers = [signal.getsignal(number) for number in signals.STOPPING]
    seen = []

    class Looking(run.Observer):
        def block(self, status):
            seen.append([signal.getsignal(number) for number in signals.STOPPING])

    values = {"task": {"name": "copy"}, "model": {"memory_slots": 8}, "training": {"episodes": 100}}
    experiment = Experiment.from_plain(values)

    def work():
        return run.train(experiment, "run", observer=Looking(), scored=False).episodes

    assert in_a_thread(work) == 100
    assert seen == [handlers]
    assert in_a_thread(lambda: tapehead(*TINY, "other")) == 0
    assert [signal.getsignal(number) for number in signals.STOPPING] == handlers


def test_ctrl_c_twice_while_saving_keeps_the_checkpoint(monkeypatch, capsys):
    original = checkpoint.save

    def signalled(*given):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        return original(*given)

    monkeypatch.setattr("tapehead.experiment.run.SAVE_SECONDS", -1.0)
    monkeypatch.setattr(checkpoint, "save", signalled)
    assert tapehead(*TINY, "run") == 130
    assert "saved in run. The same command goes on from there." in capsys.readouterr().err
    (saved,) = checkpoint.folders(Path("run/checkpoints"))
    assert checkpoint.load(saved).step > 0


def test_ctrl_c_twice_while_compiling_stops_at_once(monkeypatch, capsys):
    def compiling(*given):
        try:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
        except KeyboardInterrupt:
            raise RuntimeError("lowering failed") from None

    monkeypatch.setattr(Trainer, "_launch", compiling)
    assert tapehead(*TINY, "run") == 130
    announced, stopping = capsys.readouterr().err.splitlines()
    assert announced.startswith("copy-ntm-lstm/tuned: ")
    assert stopping == "SIGINT: stopping after this block of updates; Ctrl-C stops at once."


def test_a_signal_after_the_last_block_is_not_lost(monkeypatch, capsys):
    original = Trainer.iter_blocks

    def signalled(self, **given):
        yield from original(self, **given)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Trainer, "iter_blocks", signalled)
    assert tapehead(*TINY, "run") == 143
    assert "saved in run." in capsys.readouterr().err
    assert not Path("run/result.json").exists()
