"""`tapehead completion`: scripts by which shells complete commands, options and names.

Everything that can be completed is in the script, so that completing starts no program.
"""

import dataclasses
from collections.abc import Iterator
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from tyro.conf import Positional

from tapehead.arguments import ACTIONS, COMMANDS, overview
from tapehead.paper.tables import ROWS, VARIANTS
from tapehead.registry import CONTROLLERS, FIGURES, MODELS, TASKS

if TYPE_CHECKING:
    from tapehead import arguments

BELOW = ACTIONS | {"help": COMMANDS}
"""Names that go behind a command's name."""


class Option(NamedTuple):
    """What may stand at one place of a command line; no values: a path, or a number."""

    flags: tuple[str, ...]
    """Empty for what is given without an option."""
    values: tuple[str, ...]
    takes_value: bool
    help: str


def run(options: "arguments.Completion") -> int:
    print({"bash": bash, "zsh": zsh, "fish": fish}[options.shell](), end="")
    return 0


def zoo_names() -> tuple[str, ...]:
    """As `tapehead.zoo.names`, which imports torch: a shell would wait for it whenever it starts."""
    there = files("tapehead") / "zoo" / "machines"
    return tuple(sorted(path.name.removesuffix(".json") for path in there.iterdir() if path.name.endswith(".json")))


def _values(command: str, field: str) -> tuple[str, ...]:
    """Names that may be given for a field of a command."""
    known = {
        "backend": ("auto", "reference", "cpu", "gpu"),
        "device": ("cpu", "cuda"),
        "controller": tuple(CONTROLLERS),
        "task": tuple(TASKS),
        "figure": tuple(FIGURES),
        "row": (*(row.name for row in ROWS), *VARIANTS),
        "model": zoo_names() if command == "sublayers" else tuple(MODELS),
        **dict.fromkeys(("run", "runs", "machines", "also"), zoo_names()),
    }
    if field == "what":
        return {"train": tuple(TASKS), "view": zoo_names()}.get(command, ())
    if field == "name":
        return zoo_names()
    return known.get(field, ())


def options_of(command: str, kind: type) -> Iterator[Option]:
    """The options and other arguments of a command."""
    yield Option(("--help", "-h"), (), False, "show the help")
    hints = get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        if field.name == "values":
            continue
        plain, *extras = get_args(hints[field.name]) if hasattr(hints[field.name], "__metadata__") else (field.type,)
        positional = Positional in extras
        flag = () if positional else (f"--{field.name.replace('_', '-')}", *_aliases(extras))
        if field.default is True:
            flag = (*flag, f"--no-{field.name.replace('_', '-')}")
        values = _choices(plain) or _values(command, field.name)
        yield Option(flag, values, not isinstance(field.default, bool), field.name.replace("_", " "))


def _aliases(extras: list[Any]) -> tuple[str, ...]:
    return tuple(alias for extra in extras for alias in getattr(extra, "aliases", None) or ())


def _choices(hint: Any) -> tuple[str, ...]:
    """Of a Literal, or of a Literal that may be None."""
    parts = [hint, *get_args(hint)]
    return next((get_args(part) for part in parts if get_origin(part) is Literal), ())


def commands() -> dict[str, list[Option]]:
    """All commands, those of commands as "zoo show"."""
    found: dict[str, list[Option]] = {}
    for name, kind in COMMANDS.items():
        if name in ACTIONS:
            found |= {f"{name} {word}": list(options_of(word, action)) for word, action in ACTIONS[name].items()}
        else:
            found[name] = list(options_of(name, kind))
    return found


class _Case(NamedTuple):
    """Of a command: its flags, what is given without one, and the values of its flags."""

    command: str
    flags: str
    names: str
    values: dict[str, str]


def _cases() -> list[_Case]:
    cases = [_Case("", "--help --quiet --version", " ".join([*COMMANDS, "help", "version"]), {})]
    for name, actions in BELOW.items():
        cases.append(_Case(name, "--help", " ".join(actions), {}))
    for command, options in commands().items():
        flags = " ".join(flag for option in options for flag in option.flags)
        names = " ".join(value for option in options if not option.flags for value in option.values)
        taking = [option for option in options if option.flags and option.takes_value]
        values = {flag: " ".join(option.values) for option in taking for flag in option.flags}
        cases.append(_Case(command, flags, names, values))
    return cases


_FIND_COMMAND = """\
    for ((i = @FIRST@; i < @LAST@; i++)); do
        word="@WORD@"
        case "$word" in
            -*) ;;
            *)
                if [[ -z $command ]]; then
                    command="$word"
                else
                    case "$command $word" in
                        @ACTIONS@) command="$command $word" ;;
                    esac
                fi ;;
        esac
    done
"""


def _body(first: str, last: str, word: str, previous: str) -> str:
    """What bash and zsh have in common: which command is being typed, and what may follow."""
    actions = " | ".join(f'"{name} {action}"' for name, actions in ACTIONS.items() for action in actions)
    finds = _FIND_COMMAND
    for place, text in {"FIRST": first, "LAST": last, "WORD": word, "ACTIONS": actions}.items():
        finds = finds.replace(f"@{place}@", text)
    lines = [finds, '    case "$command" in\n']
    lines += [f'        "{case.command}") flags="{case.flags}" names="{case.names}" ;;\n' for case in _cases()]
    lines.append(f'    esac\n    case "$command {previous}" in\n')
    for case in _cases():
        for flag, values in case.values.items():
            lines.append(f'        "{case.command} {flag}") names="{values}" ;;\n')
    return "".join([*lines, "    esac\n"])


def bash() -> str:
    body = _body("1", "COMP_CWORD", "${COMP_WORDS[i]}", "${COMP_WORDS[COMP_CWORD - 1]}")
    return (
        '_tapehead() {\n    local command="" flags="" names="" word i\n' + body + '    local current="'
        '${COMP_WORDS[COMP_CWORD]}"\n    if [[ $current == -* ]]; then names="$flags"; fi\n'
        '    COMPREPLY=($(compgen -W "$names" -- "$current"))\n}\n'
        "complete -o default -F _tapehead tapehead\n"  # default: files, where no name fits
    )


def zsh() -> str:
    body = _body("2", "CURRENT", "${words[i]}", "${words[CURRENT - 1]}")
    return (
        '#compdef tapehead\n_tapehead() {\n    local command="" flags="" names="" word i\n' + body + "    if [[ "
        '"${words[CURRENT]}" == -* ]]; then\n        compadd -- ${=flags}\n    else\n'
        "        compadd -- ${=names}\n        _files\n    fi\n}\ncompdef _tapehead tapehead\n"
    )


_FISH = """\
function __tapehead_words
    string join ' ' -- (commandline -opc | string match -v -- '-*')[2..]
end
function __tapehead_at
    set -l words (__tapehead_words)
    test "$words" = "$argv"
end
function __tapehead_in
    set -l words (__tapehead_words)
    string match -q -- "$argv *" "$words "
end"""


def fish() -> str:
    lines = [_FISH]
    for name, summary in overview.summaries(COMMANDS).items():
        lines.append(f"complete -c tapehead -n __fish_use_subcommand -f -a {name} -d {_quoted(summary)}")
    for name, actions in BELOW.items():
        for word, summary in overview.summaries(actions).items():
            lines.append(f"complete -c tapehead -n '__tapehead_at {name}' -f -a {word} -d {_quoted(summary)}")
    for command, options in commands().items():
        for option in options:
            lines += _fish_option(command, option)
    return "\n".join(lines) + "\n"


def _fish_option(command: str, option: Option) -> Iterator[str]:
    condition = f"-n '__tapehead_in {command}'"
    values = f" -a '{' '.join(option.values)}'" if option.values else ""
    takes = "" if not option.takes_value else " -x" if values else " -r"  # -x: no files
    if not option.flags and values:
        yield f"complete -c tapehead {condition}{values}"
    for flag in option.flags:
        form = f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
        yield f"complete -c tapehead {condition} {form}{takes}{values} -d {_quoted(option.help)}"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
