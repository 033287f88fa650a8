"""Find the smallest part of a program that still fails a check, and write it with its inputs.

The check is --against, two settings that differ as in `pteron compare`, or --command, a command that ends
with another code than 0 ({program} and {inputs} stand for the files of a part), or else a run that ends with
the same error, or crash, as that of the whole program. Each part runs in a process of its own. What was tried
is kept beside the output: after Ctrl-C the same command goes on where it was.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pteron
from pteron.cli.arguments import (
    add_json,
    add_method,
    add_program,
    add_runtime,
    check_writable,
    inputs_beside,
    load,
    method_of,
    print_json,
    runtime,
    runtime_arguments,
    write_file,
    write_files,
)
from pteron.cli.failure import UsageError
from pteron.cli.inputs import add_inputs, npz, read_inputs
from pteron.cli.numbers import seconds, tolerance
from pteron.cli.progress import Progress, progress
from pteron.devtools.reduction import reduce_units
from pteron.devtools.sub_program import SubProgram, SubPrograms

EXAMPLE = "pteron reduce model.pte --against rules=all --rtol 1e-3 -o small.pte"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_program(parser)
    add_method(parser)
    add_inputs(parser)
    add_runtime(parser)
    parser.add_argument(
        "--against", action="append", default=[], metavar="SETTING=VALUE", help="as for pteron compare"
    )
    parser.add_argument("--rtol", type=tolerance, default=1e-5, help="with --against: largest error")
    parser.add_argument("--command", dest="check", help="a command; it fails with another code than 0")
    parser.add_argument("--timeout", type=seconds, default=300.0, help="seconds of a check; longer fails")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the program to write")
    add_json(parser)


def execute(options: argparse.Namespace) -> int:
    """Writes the part: OUTPUT, and its inputs beside it as .npz."""
    if options.against and options.check is not None:
        raise UsageError("--against and --command are two checks: give one")
    check_writable(options.output)
    inputs_beside(options.output)
    content = options.program.read_bytes()
    program = load(options)
    method = method_of(program, options.method)
    inputs = read_inputs(options.input, program.inputs(method), options.seed)
    plain = argparse.Namespace(**{**vars(options), "disable_rule": ["all"]})
    try:
        parts = SubPrograms(content, program, method, inputs, runtime(plain))
    except ValueError as e:
        raise UsageError(f"{options.program}: {e}") from None
    log = options.output.with_name(f"{options.output.name}.tried.json")
    with tempfile.TemporaryDirectory(prefix="pteron-reduce-") as folder, progress("reduce") as shown:
        check = _Check(options, method, parts, Path(folder), shown, _Log(log, _key(options, content)))
        try:
            units = reduce_units(len(parts.units), check, check.expect)
        except ValueError as e:
            # The whole program passes: there is nothing to go on with.
            log.unlink(missing_ok=True)
            raise UsageError(f"{options.program}: {e}") from None
    found = parts.cut(units)
    assert found is not None, "a part that failed could be made"
    _write(options.output, found)
    log.unlink(missing_ok=True)
    _report(options, method, found, len(check.log.tried))
    return 0


def _report(options: argparse.Namespace, method: str, found: SubProgram, tried: int) -> None:
    operators = list(pteron.load(found.content).operators(method))
    facts = {
        "instructions": list(found.instructions),
        "operators": operators,
        "inputs": {name: [str(value.dtype), list(value.shape)] for name, value in found.inputs.items()},
        "tried": tried,
    }
    if options.json:
        print_json(facts)
    else:
        print(
            f"{len(found.instructions)} instructions are left after {tried} checks:"
            f" {', '.join(map(str, found.instructions))} ({', '.join(operators) or 'delegates'})"
        )
        print(f"written: {options.output}, {inputs_beside(options.output)}")


def _write(output: Path, found: SubProgram) -> None:
    write_files({output: found.content, inputs_beside(output): npz(found.inputs)})


def _key(options: argparse.Namespace, content: bytes) -> str:
    """What the results of checks hold for."""
    inputs = [
        hashlib.sha256(Path(text).read_bytes()).hexdigest() if Path(text).is_file() else text
        for text in options.input
    ]
    names = ("method", "seed", "isa", "disable_rule", "against", "rtol", "check")
    facts = [hashlib.sha256(content).hexdigest(), inputs, [getattr(options, name) for name in names]]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


@dataclass
class _Log:
    """Which parts failed, in a file, so that an interrupted reduction goes on."""

    path: Path
    key: str
    tried: dict[str, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            data = json.loads(self.path.read_text())
            if data["key"] == self.key:
                self.tried = dict(data["tried"])
        except (OSError, ValueError, KeyError, TypeError):
            self.tried = {}

    def note(self, part: str, fails: bool) -> None:
        self.tried[part] = fails
        write_file(self.path, json.dumps({"key": self.key, "tried": self.tried}))


class _Check:
    """Whether a part fails."""

    def __init__(
        self,
        options: argparse.Namespace,
        method: str,
        parts: SubPrograms,
        folder: Path,
        shown: Progress,
        log: _Log,
    ) -> None:
        self._options, self._method, self._parts = options, method, parts
        self._program, self._inputs = folder / "part.pte", folder / "part.npz"
        self._shown, self.log = shown, log
        self._signature: tuple[Any, ...] | None = None
        self._least = len(parts.units)
        #: Checks of this process, and how many there are yet at most.
        self._done, self._left = 0, 0

    def expect(self, left: int) -> None:
        """How many checks there are yet at most, with the next one."""
        self._left = left

    def __call__(self, units: tuple[int, ...]) -> bool:
        name = _ranges(units)
        known = self.log.tried.get(name)
        # Without a check the failure of the whole is what parts are compared with.
        is_first = self._signature is None and not (self._options.against or self._options.check)
        if known is None or is_first:
            self._shown.show(
                f"{self._least} of {len(self._parts.units)} units, check {len(self.log.tried) + 1}",
                self._done / (self._done + self._left) if self._left else None,
            )
            self._done += 1
            part = self._parts.cut(units)
            known = part is not None and self._fails(part)
            self.log.note(name, known)
        if known:
            self._least = min(self._least, len(units))
        return known

    def _fails(self, part: SubProgram) -> bool:
        self._program.write_bytes(part.content)
        self._inputs.write_bytes(npz(part.inputs))
        options = self._options
        if options.check is not None:
            words = [
                word.replace("{program}", str(self._program)).replace("{inputs}", str(self._inputs))
                for word in shlex.split(options.check)
            ]
            return self._run(words)[0] != 0
        common = [str(self._program), "--method", self._method, "-i", str(self._inputs), "--json"]
        common += runtime_arguments(options)
        pteron_command = [sys.executable, "-m", "pteron"]
        if options.against:
            against = [word for text in options.against for word in ("--against", text)]
            words = [*pteron_command, "compare", *common, *against, "--rtol", str(options.rtol)]
            code, out, _ = self._run(words)
            # 1 with a document is a difference; 1 without one an error, as of a part that is no program.
            return code < 0 or (code == 1 and out.lstrip().startswith("{"))
        code, _, err = self._run([*pteron_command, "run", *common])
        signature = code, _kind(err)
        if self._signature is None:
            self._signature = signature
        return code != 0 and signature == self._signature

    def _run(self, words: list[str]) -> tuple[int, str, str]:
        try:
            done = subprocess.run(
                words, capture_output=True, text=True, check=False, timeout=self._options.timeout
            )
        except subprocess.TimeoutExpired:
            return -1, "", "timeout"
        return done.returncode, done.stdout, done.stderr


def _kind(text: str) -> str:
    """The last line of an error without the places and numbers in it."""
    last = text.strip().splitlines()[-1:] or [""]
    return re.sub(r"'[^']*'|/\S*|\d+", "#", last[0])


def _ranges(units: tuple[int, ...]) -> str:
    """`0-3,7`: numbers in runs."""
    runs: list[list[int]] = []
    for unit in units:
        if runs and unit == runs[-1][1] + 1:
            runs[-1][1] = unit
        else:
            runs.append([unit, unit])
    return ",".join(f"{a}-{b}" if a != b else str(a) for a, b in runs)
