"""`tapehead view` and `tapehead site` on the command line."""

import os
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from tapehead import cli


def tapehead(*arguments):
    with pytest.raises(SystemExit) as stop:
        cli.main([*arguments])
    return stop.value.code


@pytest.fixture(autouse=True)
def somewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_export_says_what_it_wrote(tmp_path, capsys):
    assert (
        tapehead("view", "copy-ntm-feedforward", "--export", "new/page.html", "--also", "ngrams-ntm-feedforward") == 0
    )
    size = (tmp_path / "new/page.html").stat().st_size
    said = f"new/page.html: {size:,} bytes, weights in float32, 0 snapshots of its training\n"
    assert capsys.readouterr().out == said


def test_site_says_what_it_wrote(tmp_path, capsys):
    assert tapehead("site", "ngrams-ntm-feedforward", "--out", "here") == 0
    assert capsys.readouterr().out.startswith("here: 1 machines, ")
    assert (tmp_path / "here/machines/ngrams-ntm-feedforward/weights.safetensors").is_file()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("view nowhere", "nowhere is no folder of a run, nor in the zoo"),
        ("view copy-ntm-lstn", "Did you mean 'copy-ntm-lstm'"),
        ("view .", "holds no run"),
        ("view --export page.html", "--export needs a machine"),
        ("view copy-ntm-lstm --export .", "is a folder: give the file to write"),
        ("view copy-ntm-lstm --export page.html --also nowhere", "nowhere is no folder"),
        ("view copy-ntm-lstm --also ngrams-ntm-lstm", "--also is for --export"),
        ("view copy-ntm-lstm --seed 3", "seed 3 is not in copy-ntm-lstm"),
        ("view --port 70000", "--port is 70000"),
        ("view --port -1", "--port"),
        ("view --port x", "x"),
        ("site nowhere", "nowhere is no folder"),
        ("site --out mine", "has files in it, but no site of tapehead"),
        ("site --out mine/index.html", "is a file, but a site needs a folder"),
    ],
)
def test_mistakes_are_one_sentence(line, says, tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "index.html").write_text("mine")
    assert tapehead(*line.split()) == 2
    said = capsys.readouterr().err
    assert said.startswith("tapehead: ")
    assert says in said
    assert len(said.splitlines()) == 1
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["index.html", "mine"]


def test_a_port_in_use_is_one_sentence(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert tapehead("view", "--no-open", "--port", str(taken.getsockname()[1])) == 2
    assert "give another --port, or none" in capsys.readouterr().err


def test_it_serves_until_ctrl_c():
    """The address is on the first line; Ctrl-C ends it without a traceback and with its code."""
    command = [sys.executable, "-m", "tapehead.cli", "view", "copy-ntm-feedforward", "--no-open"]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            line = process.stdout.readline()
            assert line.startswith("The viewer is at http://127.0.0.1:"), line
            url = line.split()[4]
            with urllib.request.urlopen(f"{url}machines/index.json", timeout=20) as answer:
                assert b'"first":"copy-ntm-feedforward"' in answer.read()
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 130
    assert errors == ""
