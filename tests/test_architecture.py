"""Imports go one way, and the ones that cost a second are not made before they are needed."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "tapehead"

# A room may import from rooms of earlier lines and from itself, never from its own line or a later one.
ORDER = (
    ("suggest", "files", "signals", "terminal", "notices", "threads", "_version"),
    ("typed", "registry", "environment"),
    ("checks",),
    ("equations", "streams", "losses"),
    ("equations_dnc",),
    ("kernels",),
    ("tasks", "optim"),
    ("models",),
    ("portable", "convert"),
    ("evaluation",),
    ("experiment",),
    ("zoo",),
    ("sublayers",),
    ("figures",),
    ("paper",),
    ("sweep",),
    ("bench",),
    ("lab",),
    ("report",),
    ("reproduce",),
    ("viewer",),
    ("arguments",),
    ("commands",),
    ("cli",),
    ("__main__",),
)
RANK = {room: rank for rank, rooms in enumerate(ORDER) for room in rooms}


def room_of(module):
    """`tapehead.models.ntm` -> models; the package itself -> tapehead."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def imports_of(tree, module):
    """Names of all modules that the statements of a file import, wherever they stand; those for types only are not."""
    for_types = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            for_types.update(inner for statement in node.body for inner in ast.walk(statement))
    for node in ast.walk(tree):
        if node in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join(module.split(".")[: -node.level] + ([base] if base else []))
            if base == "tapehead":  # `from tapehead import cli` imports a room
                yield from (f"tapehead.{alias.name}" if alias.name in RANK else base for alias in node.names)
            else:
                yield base


def wrong_arrows(sources):
    """Sentences about imports that point back, for {module: source}."""
    for module, source in sources.items():
        room = room_of(module)
        if module == "tapehead":  # the facade shows what is in all rooms
            continue
        if room not in RANK:
            yield f"{module} is in no room that ORDER knows"
            continue
        for target in imports_of(ast.parse(source), module):
            other = room_of(target)
            if target == "tapehead" or target.partition(".")[0] != "tapehead" or other == room:
                continue  # the facade for the version, other packages, the same room
            if other not in RANK or RANK[other] >= RANK[room]:
                yield f"{module} imports {target}"


def package_sources():
    files = sorted(PACKAGE.rglob("*.py"))
    names = {file: ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts) for file in files}
    return {name.removesuffix(".__init__"): file.read_text() for file, name in names.items()}


def test_imports_go_one_way():
    sources = package_sources()
    assert len(sources) > 30
    assert list(wrong_arrows(sources)) == []


def test_tests_mirror_the_package():
    """And no two of them have one name: pytest imports them all as top-level modules."""
    tests = sorted(Path(__file__).parent.rglob("test_*.py"))
    rooms = {path.relative_to(Path(__file__).parent).parts[0] for path in tests if path.parent != Path(__file__).parent}
    assert rooms - {"docs", "examples", "outside", "soak"} <= RANK.keys()
    names = [path.name for path in tests]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    "source",
    [
        "from tapehead.models import check_model",
        "import tapehead.experiment.loop",
        "from tapehead import cli",
        "def f():\n    from tapehead.models.ntm import NTM",
        "from ..models import ntm",
        "from tapehead.unheard_of import thing",
    ],
)
def test_an_arrow_that_points_back_is_found(source):
    assert len(list(wrong_arrows({"tapehead.kernels.dispatch": source}))) == 1


@pytest.mark.parametrize(
    "source",
    [
        "from tapehead import equations",
        "from tapehead.suggest import unknown",
        "from tapehead.kernels.update import cpu",
        "import tapehead, torch",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from tapehead.models import check_model",
    ],
)
def test_an_arrow_that_points_down_is_not(source):
    assert list(wrong_arrows({"tapehead.kernels.dispatch": source})) == []


def loaded_after(statement):
    """Top-level packages that a fresh interpreter has loaded after a statement."""
    code = f"{statement}\nimport sys\nprint(' '.join({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import tapehead", {"torch", "numba", "matplotlib", "numpy"}),
        ("import tapehead.cli", {"torch", "numba", "matplotlib", "numpy"}),
        ("import tapehead.experiment.listing", {"torch", "numba", "matplotlib"}),
        ("import tapehead.sweep.driver, tapehead.sweep.engines", {"ray", "submitit", "matplotlib"}),
        ("import tapehead.paper.tables", {"torch", "numba", "matplotlib"}),
        ("import tapehead.models.ntm, tapehead.models.lstm, tapehead.tasks", {"numba", "matplotlib"}),
        ("import tapehead; tapehead.NTM", {"numba", "matplotlib"}),
    ],
)
def test_importing_is_light(statement, absent):
    loaded = loaded_after(statement)
    assert "tapehead" in loaded
    assert not loaded & absent


def test_the_facade_shows_everything_it_names():
    import tapehead

    assert set(dir(tapehead)) == set(tapehead.__all__)
    for name in tapehead.__all__:
        assert getattr(tapehead, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'NTMM'"):
        tapehead.NTMM  # noqa: B018
