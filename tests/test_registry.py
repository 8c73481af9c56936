"""The lists of what can be named: names, module:Class, registration, and where modules are looked for."""

import sys

import pytest

from tapehead import registry
from tapehead.experiment.config import Experiment
from tapehead.experiment.parts import Model, part_class
from tapehead.kernels.update.optimisers import Adam
from tapehead.registry import FIGURES, MODELS, OPTIMISERS, SCHEDULES, TASKS, Registry
from tapehead.tasks import make_task
from tapehead.tasks.copy import Copy

REGISTRIES = (TASKS, MODELS, OPTIMISERS, SCHEDULES, FIGURES)


@pytest.fixture
def things():
    return Registry("thing", {"copy": "tapehead.tasks.copy:Copy", "join": "posixpath:join"})


@pytest.mark.parametrize("names", REGISTRIES, ids=lambda names: names.kind)
def test_everything_listed_is_there_and_is_found_under_its_name(names):
    assert len(names) >= 2
    for name in names:
        found = names.resolve(name)
        assert names.name_of(found) == name
        assert names.resolve(names[name]) is found


def test_a_registry_is_a_mapping(things):
    assert dict(things) == {"copy": "tapehead.tasks.copy:Copy", "join": "posixpath:join"}
    assert "copy" in things
    assert "posixpath:join" not in things
    assert len(things) == 2


def test_resolve(things):
    assert things.resolve("copy") is Copy
    assert things.resolve("tapehead.tasks.copy:Copy") is Copy
    assert things.resolve("tapehead.tasks.copy:Copy.sample") is Copy.sample
    assert things.name_of(Copy) == "copy"


def test_what_is_registered_is_found_by_name_and_kept_by_its_place(things):
    @things.register("mine")
    class Mine:
        pass

    assert things.resolve("mine") is Mine
    assert "mine" in things
    where = f"{__name__}:{Mine.__qualname__}"
    assert things["mine"] == where
    assert things.name_of(Mine) == where  # a process that has not run the decorator finds it there
    assert things.resolve(where) is Mine  # though it is inside a function, where no import finds it
    assert things.register("mine")(Mine) is Mine  # again, as a module that is loaded again does


def test_a_name_is_given_once(things):
    with pytest.raises(ValueError, match=r"the thing 'copy' is tapehead.tasks.copy:Copy already: choose another name"):
        things.register("copy")(Adam)
    assert things.resolve("copy") is Copy
    for name in ("", "a:b", None):
        with pytest.raises(ValueError, match="cannot name a thing: give a word without a colon"):
            things.register(name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cpy", r"unknown thing 'cpy'\. Did you mean 'copy'\? .* named as module:Class"),
        ("nowhere:Thing", "the thing 'nowhere:Thing' needs a module 'nowhere', which is not on the path"),
        ("nowhere.deep.down:Thing", "needs a module 'nowhere', which is not on the path"),
        ("tapehead.nowhere:Thing", r"needs a module 'tapehead.nowhere', which is not on the path"),
        ("tapehead.tasks.copy:Coppy", "'tapehead.tasks.copy:Coppy' is not there: give module:Class"),
        ("tapehead.tasks.copy:", "is not there: give module:Class"),
        (":Copy", "is not there: give module:Class"),
        (".relative:Copy", "is not there: give module:Class"),
    ],
)
def test_what_cannot_be_found_is_one_sentence(things, name, message):
    with pytest.raises(ValueError, match=message) as found:
        things.resolve(name)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import a_module_that_is_not_there", "ModuleNotFoundError: No module named 'a_module_that_is_not_there'"),
        ("def broken(:", "SyntaxError: invalid syntax"),
        ("raise ValueError('the sizes here are wrong')", "ValueError: the sizes here are wrong"),
        ("import sys; sys.nothing", "AttributeError: module 'sys' has no attribute 'nothing'"),
    ],
)
def test_a_module_that_breaks_is_not_said_to_be_missing(things, text, message, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "breaks_when_imported.py").write_text(text)
    with pytest.raises(ValueError, match="'breaks_when_imported:Thing' cannot be imported") as found:
        things.resolve("breaks_when_imported:Thing")
    assert message in str(found.value)
    assert found.value.__cause__ is not None  # with its line


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda: make_task("collections:Counter"), "collections:Counter is no task: a task is a subclass"),
        (lambda: make_task("posixpath:join"), "posixpath:join is no task"),
        (lambda: part_class("task", "adam:x"), "needs a module 'adam'"),
        (lambda: part_class("optimiser", "torch.optim:Adam"), "torch.optim:Adam is no Optimiser"),
        (lambda: part_class("schedule", "tapehead.tasks.copy:Copy"), "is no Schedule: give a subclass"),
        (lambda: Model(name="torch.nn:LSTM"), "torch.nn:LSTM is no model"),
        (lambda: Experiment.from_plain({"task": {"name": "torch:nn"}}), "torch:nn is no Task"),
    ],
)
def test_what_is_something_else_is_refused(use, message):
    with pytest.raises(ValueError, match=message):
        use()


# --- the folders of the command line ---------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "SEARCH", [tmp_path])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def test_a_module_in_a_folder_of_the_search_is_found(things, here):
    (here / "found_by_search.py").write_text("import beside_it\nThing = beside_it.Thing\n")
    (here / "beside_it.py").write_text("class Thing: pass\n")
    path = list(sys.path)
    assert things.resolve("found_by_search:Thing").__module__ == "beside_it"
    assert sys.path == path


def test_the_search_is_last(things, here):
    """A file of the working directory never takes the place of an installed module."""
    (here / "colorsys.py").write_text("rgb_to_hsv = 'not this one'\n")
    sys.modules.pop("colorsys", None)
    assert callable(things.resolve("colorsys:rgb_to_hsv"))


def test_without_folders_nothing_is_searched(things, here, monkeypatch):
    (here / "not_searched_for.py").write_text("class Thing: pass\n")
    monkeypatch.setattr(registry, "SEARCH", [])
    monkeypatch.chdir(here)
    with pytest.raises(ValueError, match="needs a module 'not_searched_for'"):
        things.resolve("not_searched_for:Thing")


def test_a_path_is_as_before_after_a_module_that_breaks(things, here):
    (here / "breaks_in_the_search.py").write_text("1 / 0\n")
    path = list(sys.path)
    with pytest.raises(ValueError, match="ZeroDivisionError: division by zero"):
        things.resolve("breaks_in_the_search:Thing")
    assert sys.path == path
