"""What benchmarks/gpu_sanitize.py makes of the output of compute-sanitizer. The samples are written by hand, in its
format; running it needs a GPU.
"""

import importlib.util
import sys
from collections import Counter
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "benchmarks" / "gpu_sanitize.py"
TOP, NO_ERRORS = "========= COMPUTE-SANITIZER\n", "========= ERROR SUMMARY: 0 errors\n"
KERNELS = "@kernels ntm_backward=2 ntm_forward=4\n"


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("gpu_sanitize", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its dataclasses look for it
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def output(*reports, summary=NO_ERRORS, finite="finite"):
    """Of a pass over two shapes, with these reports in the second."""
    marks = f"@begin one\n@end one | 1.5 | finite\n@begin two\n{''.join(reports)}@end two | 2.0 | {finite}\n"
    return TOP + marks + KERNELS + summary


def errors(count):
    return f"========= ERROR SUMMARY: {count} error{'s' if count > 1 else ''}\n"


def body(function):
    return (
        f"=========     at {function}+0x160\n"
        "=========     by thread (31,0,0) in block (0,0,0)\n"
        "=========     Address 0x7f551b600001 is out of bounds\n"
        "=========\n"
    )


REPORTS = {
    "memcheck": "========= Invalid __global__ write of size 4 bytes\n" + body("ntm_forward"),
    "memcheck, misaligned": "========= Misaligned Shared or Local Address\n" + body("ntm_forward(Arguments)"),
    "initcheck": "========= Uninitialized __global__ memory read of size 4 bytes\n" + body("ntm_outputs"),
    "synccheck": "========= Barrier error detected. Divergent thread(s) in block.\n" + body("ntm_backward"),
    "synccheck, no barrier": "========= Barrier error detected. Missing init.\n" + body("lstm_layer"),
    "a function that is not inlined": (
        "========= Invalid __shared__ read of size 4 bytes\n"
        + body("forward_pass::softmax_with_maximum(const float *, float *)")
    ),
    "an older tool": "========= Invalid __global__ read of size 4 bytes\n=========     at 0x1b8 in ntm_forward\n",
}


@pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)
def test_a_report_is_not_clean(tool, report):
    found = tool.read_output(output(report, summary=errors(1)), ["one", "two"], 0)
    assert found.reports == Counter(two=1)
    assert found.others == 0
    assert not tool.clean(found)


def test_races(tool):
    race = (
        "========= Error: Race reported between Write access at ntm_forward+0x50\n"
        "=========     and Read access at ntm_forward+0x90 [128 hazards]\n=========\n"
    )
    warning = race.replace("Error", "Warning").replace("ntm_forward", "update_apply")
    summary = "========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)\n"
    found = tool.read_output(output(race, warning, summary=summary), ["one", "two"], 0)
    assert found.reports == Counter(two=2)
    assert set(found.functions) == {"ntm_forward", "update_apply"}
    assert found.failure is None
    assert not tool.clean(found)
    none = "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"
    assert tool.clean(tool.read_output(output(summary=none), ["one", "two"], 0))


def test_a_pass_without_reports_is_clean(tool):
    found = tool.read_output(output(), ["one", "two"], 0)
    assert tool.clean(found)
    assert found.seconds == {"one": 1.5, "two": 2.0}
    assert found.launched == {"ntm_forward": 4, "ntm_backward": 2}
    assert [line.split(" | ")[2].strip() for line in tool.lines_of("memcheck", found, ["one", "two"], 3.0)[:2]] == [
        "0"
    ] * 2


def test_reports_of_torch_are_counted_apart(tool):
    other = REPORTS["initcheck"].replace("ntm_outputs", "void at::native::vectorized_elementwise_kernel<4>(int)")
    found = tool.read_output(output(other, summary=errors(1)), ["one", "two"], 0)
    assert (found.others, found.reports.total()) == (1, 0)
    assert tool.clean(found)
    found = tool.read_output(output(other, REPORTS["memcheck"], summary=errors(2)), ["one", "two"], 0)
    assert (found.others, found.reports.total(), set(found.functions)) == (1, 1, {"ntm_forward"})
    assert not tool.clean(found)


UNSOUND = {
    "a report that was not recognised": (output(summary=errors(1)), 0),
    "no summary": (output(summary=""), 0),
    "a shape is missing": (output().replace("@end two", "@end three"), 0),
    "an exit code": (output(), 1),
    "not finite": (output(finite="NOT FINITE"), 0),
    "a tool that fails": (output("========= Internal Sanitizer Error: The Sanitizer encountered an error\n"), 0),
    "a tool that cannot attach": (output("========= Error: Target application terminated before first API call\n"), 0),
    "nothing at all": ("", 0),
}


@pytest.mark.parametrize(("text", "code"), UNSOUND.values(), ids=UNSOUND)
def test_what_is_not_clean_either(tool, text, code):
    found = tool.read_output(text, ["one", "two"], code)
    assert not tool.clean(found)
    assert "NOT CLEAN" in "\n".join(tool.lines_of("memcheck", found, ["one", "two"], 3.0))


@pytest.fixture
def measured(tool, monkeypatch, tmp_path):
    """`measure` with a tool that prints one text for every pass; whether it found all well, and the file it wrote."""

    def measure(text, launched=None):
        monkeypatch.setattr(tool, "find_sanitizer", lambda: "compute-sanitizer")
        monkeypatch.setattr(tool, "header", lambda *_: ["header"])
        monkeypatch.setattr(tool, "warm_up", lambda _: Counter(launched or {"ntm_forward": 4, "ntm_backward": 2}))
        monkeypatch.setattr(tool, "one_pass", lambda names, wrapper: tool.read_output(text, names, 0))
        good = tool.measure(["memcheck"], ["one", "two"], tmp_path / "out.txt")
        return good, (tmp_path / "out.txt").read_text()

    return measure


def test_measure_says_whether_all_is_well(measured):
    good, text = measured(output())
    assert good
    assert "all: clean" in text
    good, text = measured(output(REPORTS["memcheck"], summary=errors(1)))
    assert not good
    assert "NOT CLEAN; 1 error" in text
    good, text = measured(output(), launched={"ntm_forward": 4, "ntm_backward": 3})
    assert not good
    assert "not launched as often as without a tool: ntm_backward\n" in text


@pytest.mark.parametrize(
    ("racing", "verdict"),
    [
        (["control_race", "control_exchange_race"], "it is right"),
        ([], "it is WRONG"),
        (["control_race"], "it is WRONG"),
        (["control_barriers", "control_race", "control_exchange_race"], "it is WRONG"),
    ],
)
def test_racecheck_is_asked_about_kernels_whose_races_are_known(tool, monkeypatch, racing, verdict):
    text = TOP
    for name in tool.CONTROLS:
        report = f"========= Error: Race reported between Write access at {name}+0x50\n=========\n"
        text += f"@begin {name}\n{report if name in racing else ''}@end {name} | 0.0 | finite\n"
    monkeypatch.setattr(tool, "one_pass", lambda names, _: tool.read_output(text, names, 0))
    right, lines = tool.control_lines("compute-sanitizer")
    assert right == (verdict == "it is right")
    assert lines[-1] == f"racecheck | its controls: {verdict}"
    monkeypatch.setattr(tool, "one_pass", lambda names, _: tool.read_output(TOP, names, 1))
    assert not tool.control_lines("compute-sanitizer")[0]


def test_races_are_looked_for_again_where_all_teams_meet_as_many_barriers(tool, monkeypatch, tmp_path):
    race = "========= Error: Race reported between Write access at dnc_forward+0x50\n=========\n"
    counted = "========= RACECHECK SUMMARY: {} hazards displayed ({} errors, 0 warnings)\n"
    ragged, even = output(race, summary=counted.format(1, 1)), output(summary=counted.format(0, 0))
    monkeypatch.setattr(tool, "find_sanitizer", lambda: "compute-sanitizer")
    monkeypatch.setattr(tool, "header", lambda *_: ["header"])
    monkeypatch.setattr(tool, "control_lines", lambda _: (True, []))
    monkeypatch.setattr(tool, "warm_up", lambda _: Counter(ntm_forward=4, ntm_backward=2))
    passes = {False: ragged, True: even}
    monkeypatch.setattr(tool, "one_pass", lambda names, _, even=False: tool.read_output(passes[even], names, 0))
    assert not tool.measure(["racecheck"], ["one", "two"], tmp_path / "out.txt")
    first, second = (tmp_path / "out.txt").read_text().split("racecheck again, sequences of one length:\n")
    assert "NOT CLEAN" in first
    assert "all: clean" in second


def test_without_the_tool_it_says_so(tool, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(tool, "PLACES", ())
    with pytest.raises(SystemExit, match="compute-sanitizer was not found: install"):
        tool.find_sanitizer()


def test_all_kernels_of_the_sources_are_known_by_name(tool):
    """A kernel that no shape launches is an error, so none may be missed."""
    sources = sorted(Path(tool.nvrtc.__file__).parent.glob("*/*.cu"))
    count = sum(text.count("__global__ void") for text in (path.read_text() for path in sources))
    assert len(tool.kernel_names()) == count > 20
