"""Typed data: one canonical form for each value, from Python, a command line, JSON or TOML."""

import dataclasses
import json
import math
import tomllib
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapehead.typed import Typed, canonical, describe, fits, parse, plain, to_toml

Size = int | tuple[int, int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part(Typed):
    rate: float = 1.0
    name: str = "x"

    def check(self):
        if self.rate < 0:
            raise ValueError(f"rate is {self.rate}, but it must not be negative.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Whole(Typed):
    count: int
    size: Size = (1, 2)
    kind: Literal["a", "b"] = "a"
    limit: float | None = None
    flags: tuple[bool, ...] = ()
    table: dict[str, Any] = dataclasses.field(default_factory=dict)
    part: Part = Part()


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        (1, float, 1.0),
        (np.float32(0.5), float, 0.5),
        (np.int64(3), int, 3),
        (3.0, int, 3),
        (2**64, int, 2**64),
        (True, bool, True),
        (None, float | None, None),
        (2, float | None, 2.0),
        ([1, 2], tuple[int, int], (1, 2)),
        (range(3), tuple[int, ...], (0, 1, 2)),
        ([1, 2.0], tuple[float, ...], (1.0, 2.0)),
        (5, Size, 5),
        ([1, 20], Size, (1, 20)),
        ("a", Literal["a", "b"], "a"),
        ({"a": [1, [2]]}, dict[str, Any], {"a": (1, (2,))}),
        ({"a": 1}, dict[str, float], {"a": 1.0}),
        ([[1]], Any, ((1,),)),
    ],
)
def test_canonical(value, hint, expected):
    found = canonical(value, hint, "it")
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("value", "hint", "words"),
    [
        (True, int, "a whole number"),
        (True, float, "a finite number"),
        (1, bool, "true or false"),
        (2.5, int, "a whole number"),
        (math.nan, float, "a finite number"),
        (math.inf, int, "a whole number"),
        (1e39, float | None, "a finite number or none"),
        (10**400, float, "a finite number"),
        ("3", int, "a whole number"),
        (3, str, "a word"),
        (None, int, "a whole number"),
        ([1, 2, 3], tuple[int, int], r"a list of 2 such as \[1,20\]"),
        ("ab", tuple[str, str], "a list of 2"),
        ({"a": 1}, tuple[str, ...], "a list, each of it a word"),
        ([1, "x"], tuple[int, ...], "a list, each of it a whole number"),
        ("c", Literal["a", "b"], "a or b"),
        (1, Literal["a", "b"], "a or b"),
        (True, Literal[1, 2], "1 or 2"),
        ("x", float | None, "a finite number or none"),
        (2.5, Size, r"a whole number or a list of 2 such as \[1,20\]"),
        ([1], dict[str, int], "a table of names and values"),
        ({1: 2}, dict[str, int], "a table of names and values"),
    ],
)
def test_what_is_not_canonical_is_one_sentence(value, hint, words):
    with pytest.raises(ValueError, match=f"^it is .*, but it must be {words}") as found:
        canonical(value, hint, "it")
    assert "\n" not in str(found.value)
    assert len(str(found.value)) < 200
    assert describe(hint) in str(found.value)


def test_a_number_that_float32_does_not_hold_is_another_sentence():
    with pytest.raises(ValueError, match=r"^it is 1e\+39, but float32 ends at 3.40e\+38: give a smaller number.$"):
        canonical(1e39, float, "it")
    largest = float(np.finfo(np.float32).max)
    assert canonical(largest, float, "it") == largest


def test_one_and_one_point_zero_are_one_value():
    one, other = Whole(count=3.0, limit=1, size=[1, 2]), Whole(count=3, limit=1.0)
    assert one == other
    assert json.dumps(one.to_plain()) == json.dumps(other.to_plain())


def test_plain_values_and_back():
    whole = Whole(count=3, size=5, flags=(True, False), table={"x": (1, {"y": 2})}, part=Part(rate=2))
    values = whole.to_plain()
    assert values == json.loads(json.dumps(values))
    assert values["part"] == {"rate": 2.0, "name": "x"}
    assert Part.from_plain(values["part"]) == whole.part
    assert Whole.from_plain(values | {"part": whole.part}) == whole
    assert plain((1, (2, {"a": (3,)}))) == [1, [2, {"a": [3]}]]


def test_from_plain_refuses():
    with pytest.raises(ValueError, match=r"unknown setting of a part 'rat'\. Did you mean 'rate'"):
        Part.from_plain({"rat": 3}, "a part")
    with pytest.raises(ValueError, match="Whole: missing 1 required keyword-only argument: 'count'"):
        Whole.from_plain({})
    with pytest.raises(ValueError, match=r"rate is -1\.0, but it must not be negative"):
        Part.from_plain({"rate": -1})
    with pytest.raises(ValueError, match=r"part is \{'rate': 2\}, but it must be a Part"):
        Whole.from_plain({"count": 3, "part": {"rate": 2}})


@pytest.mark.parametrize(
    ("text", "hint", "expected"),
    [
        ("3", int, 3),
        ("3", str, "3"),
        ("none", float | None, None),
        ("None", int | None, None),
        ("none", str, "none"),
        ("true", bool, True),
        ("True", bool, True),
        ("[1,5]", Size, [1, 5]),
        ("1e-3", float, 1e-3),
        ("a", Literal["a", "b"], "a"),
        ("none", Literal["none", "norm"], "none"),  # a word that the annotation takes is that word
        ("1", Literal["1", "2"], "1"),
        ('{"Length": 3}', dict[str, Any], {"Length": 3}),
        ("some:Class", str, "some:Class"),
        ("word", int, "word"),  # for `canonical` to refuse
        ("[" * 100_000, int, "[" * 100_000),
    ],
)
def test_parse(text, hint, expected):
    assert parse(text, hint) == expected


# --- TOML ------------------------------------------------------------------------------------------------------------

words = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=12)
values = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(words, values, max_size=5))
def test_toml_is_read_as_it_was_written(table):
    assert tomllib.loads(to_toml(table)) == table


def test_toml_in_order_without_none():
    table = {"a": {"x": 1, "none": None}, "seeds": [1, 2], "b": {"in": {"y": None, "z": 0.5}}, "c": None}
    expected = "seeds = [1, 2]\n\n[a]\nx = 1\n\n[b]\nin = { z = 0.5 }\n"
    assert to_toml(table) == expected


def test_fits():
    assert fits(1, float)
    assert not fits(True, float)
    assert fits([1, 2], list[int])
    assert not fits((1, 2), list[int])
    assert fits(None, int | None)
    assert fits({"a": 1}, dict[str, int])
    assert not fits({"a": "x"}, dict[str, int])
