"""The public names of tapehead, by the room that they are defined in."""

import inspect
import re
from pathlib import Path
from types import ModuleType

import tapehead


def room_of(name: str) -> str:
    """Where a public name is defined: the first part of its module below tapehead."""
    found = getattr(tapehead, name)
    if isinstance(found, ModuleType):
        return name
    home = tapehead._HOME.get(name, "tapehead.registry")
    return home.split(".")[1]


def members(rooms: str, page: Path) -> str:
    """The names of these rooms; for `others`, a section of those whose room is not on the page."""
    public = {name: room_of(name) for name in tapehead.__all__ if not name.startswith("_")}
    if rooms == "others":
        named = set(" ".join(re.findall(r"generated: api (.+) -->", page.read_text())).split())
        names = [name for name, room in public.items() if room not in named]
        return f"## Others\n\n{entries(names)}" if names else ""
    names = [name for name, room in public.items() if room in rooms.split()]
    if not names:
        raise ValueError(f"no public name of tapehead is defined in {rooms}: correct {page}.")
    return entries(names)


def entries(names: list[str]) -> str:
    return "```{eval-rst}\n" + "\n".join(entry(name) for name in sorted(names, key=str.lower)) + "\n```\n"


def entry(name: str) -> str:
    found = getattr(tapehead, name)
    if isinstance(found, ModuleType):
        return f".. automodule:: tapehead.{name}\n   :members:\n"
    if inspect.isclass(found):
        return f".. autoclass:: tapehead.{name}\n   :members:\n   :show-inheritance:\n"
    if inspect.isfunction(found):
        return f".. autofunction:: tapehead.{name}\n"
    return f".. autodata:: tapehead.{name}\n   :no-value:\n"
