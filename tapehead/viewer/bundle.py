"""The page's modules as one script, because browsers load no modules from `file://`.

Every module becomes a function that returns what it exports, called once, after those that it imports. This knows the
module style of the page and nothing else:

    import { a, b as c } from "./x.js";     import * as x from "./x.js";     import "./x.js";
    export function f() {}   export async function f() {}   export class C {}   export const c = 1;
    export { a, b as c };    export { a, b as c } from "./x.js";

each at the beginning of a line. Any other form, and a circle of imports, is refused. Comments that fill whole lines,
and types inside lines, are left out. The same files give the same bytes.
"""

import posixpath
import re
from collections.abc import Callable, Mapping

_FROM = r'\s*from\s*"(?P<source>\.[^"]+)";'
_IMPORTS = (
    (re.compile(r"^import\s*\{(?P<names>[^}]*)\}" + _FROM, re.M), "names"),
    (re.compile(r"^import\s*\*\s*as\s+(?P<all>\w+)" + _FROM, re.M), "all"),
    (re.compile(r'^import\s*"(?P<source>\.[^"]+)";', re.M), "effect"),
)
_REEXPORT = re.compile(r"^export\s*\{(?P<names>[^}]*)\}" + _FROM, re.M)
_EXPORT_LIST = re.compile(r"^export\s*\{(?P<names>[^}]*)\};", re.M)
_DECLARED = re.compile(r"^export\s+((?:async\s+function\*?|function\*?|class|const)\s+(\w+))", re.M)
_LEFT = re.compile(r"^(?:import|export)\b.*|\bimport\s*\(.*|^await\b.*", re.M)
_BLOCK_COMMENT = re.compile(r"^[ \t]*/\*(?:(?!\*/).)*\*/[ \t]*\n", re.M | re.S)  # not past its own end
_LINE_COMMENT = re.compile(r"^[ \t]*//.*\n", re.M)
_INLINE_TYPE = re.compile(r"/\*\* @[^\n]*?\*/ ?")


def bundle(sources: Mapping[str, str], entry: str) -> str:
    """One script from modules {path: text}, beginning at `entry`; paths are relative, with forward slashes."""
    parts: list[str] = []
    _add(sources, entry, [], {}, parts)
    text = '"use strict";\n(() => {\n' + "".join(parts) + "})();\n"
    for forbidden in ("</script", "<!--"):
        if forbidden in text.lower():
            raise ValueError(f"a module holds {forbidden!r}, which would end the script: write it in two parts.")
    return text


def _add(sources: Mapping[str, str], path: str, above: list[str], done: dict[str, str], parts: list[str]) -> str:
    """Append a module, after those that it imports; the variable that holds its exports."""
    if path in done:
        return done[path]
    if path in above:
        raise ValueError(f"modules import each other in a circle: {' -> '.join([*above, path])}.")
    if path not in sources:
        raise ValueError(f"{above[-1] if above else 'the page'} imports {path}, which is not there.")

    def module(source: str) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), source))
        return _add(sources, target, [*above, path], done, parts)

    body, exports = _translate(_without_comments(sources[path]), path, module)
    name = f"m{len(done)}"
    done[path] = name
    parts.append(f"// {path}\nconst {name} = (() => {{\n{body}return {{ {', '.join(exports)} }};\n}})();\n")
    return name


def _translate(text: str, path: str, module: Callable[[str], str]) -> tuple[str, list[str]]:
    """A module's text as the inside of a function, and its exports as entries of an object."""
    exports: list[str] = []

    def replace_import(kind: str) -> Callable[[re.Match[str]], str]:
        def replace(found: re.Match[str]) -> str:
            source = module(found["source"])
            if kind == "effect":
                return ""
            if kind == "all":
                return f"const {found['all']} = {source};"
            pairs = (f"{name}: {local}" if name != local else name for name, local in _pairs(found["names"], path))
            return f"const {{ {', '.join(pairs)} }} = {source};"

        return replace

    def reexport(found: re.Match[str]) -> str:
        source = module(found["source"])
        exports.extend(f"{public}: {source}.{name}" for name, public in _pairs(found["names"], path))
        return ""

    def listed(found: re.Match[str]) -> str:
        exports.extend(f"{public}: {name}" for name, public in _pairs(found["names"], path))
        return ""

    def declared(found: re.Match[str]) -> str:
        exports.append(found[2])
        return found[1]

    for pattern, kind in _IMPORTS:
        text = pattern.sub(replace_import(kind), text)
    text = _REEXPORT.sub(reexport, text)
    text = _EXPORT_LIST.sub(listed, text)
    text = _DECLARED.sub(declared, text)
    left = _LEFT.search(text)
    if left:
        raise ValueError(
            f"{path} has {left[0][:60]!r}, a form that the exporter does not know: see tapehead/viewer/bundle.py."
        )
    return text if text.endswith("\n") else f"{text}\n", exports


def _pairs(names: str, path: str) -> list[tuple[str, str]]:
    """`a, b as c` as [(a, a), (b, c)]."""
    pairs = []
    for part in filter(None, (name.strip() for name in names.split(","))):
        found = re.fullmatch(r"(\w+)(?:\s+as\s+(\w+))?", part)
        if found is None or found[1] == "default":
            raise ValueError(f"{path} names {part[:40]!r} in braces, which the exporter does not know.")
        pairs.append((found[1], found[2] or found[1]))
    return pairs


def _without_comments(text: str) -> str:
    """Without lines of comment and types inside lines. In a template literal, after an odd backtick, all stays."""

    def unless_in_template(found: re.Match[str]) -> str:
        return found[0] if text.count("`", 0, found.start()) % 2 else ""

    for pattern in (_BLOCK_COMMENT, _LINE_COMMENT, _INLINE_TYPE):
        text = pattern.sub(unless_in_template, text)
    return text
