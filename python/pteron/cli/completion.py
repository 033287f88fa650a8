"""Print the completion of commands and options for a shell: bash, zsh or fish.

bash: put `eval "$(pteron completion bash)"` into ~/.bashrc; zsh: the same with zsh into ~/.zshrc, behind
compinit; fish: `pteron completion fish > ~/.config/fish/completions/pteron.fish`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from pteron.cli.arguments import print_json

EXAMPLE = 'eval "$(pteron completion bash)"'


@dataclass(frozen=True)
class Option:
    """An option of a command with the values that it may have; none: a file, or anything."""

    names: tuple[str, ...]
    help: str
    choices: tuple[str, ...]
    takes_value: bool


@dataclass(frozen=True)
class Completed:
    """A command as shells complete it: `choices` are those of its positional arguments."""

    name: str
    help: str
    options: tuple[Option, ...]
    choices: tuple[str, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("shell", choices=sorted(WRITERS), help="the shell")
    parser.add_argument("--json", action="store_true", help="print the commands and their options as JSON")


def execute(options: argparse.Namespace) -> int:
    """Prints the script."""
    found = list(commands())
    if options.json:
        print_json({"shell": options.shell, "commands": [asdict(one) for one in found]})
    else:
        print("\n".join(WRITERS[options.shell](found)))
    return 0


def commands() -> Iterator[Completed]:
    """Every command of the parser."""
    from pteron.cli import parser

    whole = next(a for a in parser()._actions if isinstance(a, argparse._SubParsersAction))
    texts = {choice.dest: choice.help or "" for choice in whole._choices_actions}
    for name, one in whole.choices.items():
        options: list[Option] = []
        choices: list[str] = []
        for action in one._actions:
            values = tuple(str(value) for value in action.choices or ())
            if not action.option_strings:
                choices += values
            elif action.help != argparse.SUPPRESS:
                takes = action.nargs != 0
                options.append(Option(tuple(action.option_strings), action.help or "", values, takes))
        yield Completed(name, texts[name], tuple(options), tuple(choices))


def _bash(found: list[Completed]) -> Iterator[str]:
    yield "_pteron() {"
    yield '  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words="" values=""'
    yield "  if [ $COMP_CWORD -eq 1 ]; then"
    yield f'    words="{" ".join(one.name for one in found)} --help --version"'
    yield "  else"
    yield '    case "${COMP_WORDS[1]}" in'
    for one in found:
        names = [name for option in one.options for name in option.names]
        yield f'      {one.name}) words="{" ".join([*names, *one.choices])}"'
        for option in one.options:
            if option.choices:
                cases, values = "|".join(option.names), " ".join(option.choices)
                yield f'        case "$before" in {cases}) values="{values}";; esac'
        yield "        ;;"
    yield "    esac"
    yield "  fi"
    yield '  COMPREPLY=($(compgen -W "${values:-$words}" -- "$word"))'
    # A path where no word fits: `-o default` of `complete`.
    yield "}"
    yield "complete -o default -F _pteron pteron"


def _zsh(found: list[Completed]) -> Iterator[str]:
    yield "#compdef pteron"
    yield "_pteron() {"
    yield "  if (( CURRENT == 2 )); then"
    yield "    local -a names=("
    yield from (f"      {_quoted(f'{one.name}:{one.help}')}" for one in found)
    yield "    )"
    yield "    _describe command names"
    yield "    return"
    yield "  fi"
    yield '  case "$words[2]" in'
    for one in found:
        yield f"    {one.name})"
        yield "      shift words; (( CURRENT-- ))"
        specs = [_zsh_spec(name, option) for option in one.options for name in option.names]
        rest = f"*:value:({' '.join(one.choices)})" if one.choices else "*:file:_files"
        yield f"      _arguments {' '.join(_quoted(spec) for spec in [*specs, rest])} ;;"
    yield "  esac"
    yield "}"
    yield "compdef _pteron pteron"


def _zsh_spec(name: str, option: Option) -> str:
    text = "".join("_" if letter in "[]:" else letter for letter in option.help)
    value = f":value:({' '.join(option.choices)})" if option.choices else ":value:_files"
    return f"*{name}[{text}]{value if option.takes_value else ''}"


def _fish(found: list[Completed]) -> Iterator[str]:
    for one in found:
        yield f"complete -c pteron -n __fish_use_subcommand -f -a {one.name} -d {_quoted(one.help)}"
        here = f"complete -c pteron -n '__fish_seen_subcommand_from {one.name}'"
        if one.choices:
            yield f"{here} -f -a {_quoted(' '.join(one.choices))}"
        for option in one.options:
            names = " ".join(
                f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names
            )
            value = " -r" if option.takes_value else ""
            if option.choices:
                value = f" -x -a {_quoted(' '.join(option.choices))}"
            yield f"{here} {names}{value} -d {_quoted(option.help)}"


def _quoted(text: str) -> str:
    inside = text.replace("'", "'\\''")
    return f"'{inside}'"


WRITERS = {"bash": _bash, "fish": _fish, "zsh": _zsh}
