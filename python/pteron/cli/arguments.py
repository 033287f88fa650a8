"""Arguments that several commands share, and what they open."""

from __future__ import annotations

import argparse
import errno
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import pteron
from pteron.cli.failure import UsageError, about


def add_program(parser: argparse.ArgumentParser, name: str = "program") -> None:
    """The program file and its data files."""
    parser.add_argument(name, type=Path, help="a .pte file")
    parser.add_argument(
        "--data",
        type=Path,
        action="append",
        default=[],
        help="a data file (.ptd) of the program; may be repeated",
    )


def add_method(parser: argparse.ArgumentParser) -> None:
    """The method."""
    parser.add_argument("--method", help="the method (default: forward, or the only one)")


def add_json(parser: argparse.ArgumentParser) -> None:
    """JSON in place of text."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_runtime(parser: argparse.ArgumentParser) -> None:
    """How the program is run."""
    add_isa(parser)
    parser.add_argument(
        "--disable-rule",
        action="append",
        default=[],
        metavar="RULE",
        help="switch off a rewrite at load, or `all`; may be repeated",
    )
    add_backends(parser)


def runtime_arguments(options: argparse.Namespace) -> list[str]:
    """The arguments of `add_runtime` again, for another process."""
    out = [] if options.isa is None else ["--isa", options.isa]
    for name, values in (("--disable-rule", options.disable_rule), ("--backend", options.backend)):
        out += [word for value in values for word in (name, value)]
    return out


def add_isa(parser: argparse.ArgumentParser) -> None:
    """The instruction set."""
    parser.add_argument("--isa", help="instruction set of the kernels (default: the best of this processor)")


def add_backends(parser: argparse.ArgumentParser) -> None:
    """Backends of installed packages."""
    parser.add_argument(
        "--backend",
        action="append",
        default=[],
        help="load the installed backend of this id; may be repeated",
    )


def load(options: argparse.Namespace, path: Path | None = None) -> pteron.Program:
    """The program that the options name, in a runtime as they say."""
    file = path or options.program
    with about(file):
        return pteron.load(file, data=options.data or None, runtime=runtime(options))


def runtime(options: argparse.Namespace) -> pteron.Runtime | None:
    """The runtime that the options ask for; None for the default one."""
    isa = getattr(options, "isa", None)
    rules = getattr(options, "disable_rule", [])
    wanted = None
    if isa is not None or rules:
        try:
            wanted = pteron.Runtime(isa=isa, disabled_rules=rules)
        except ValueError as e:
            raise UsageError(str(e)) from None
    known = (wanted or pteron.Runtime.shared()).backends
    for backend in getattr(options, "backend", []):
        if backend in known:
            continue
        try:
            pteron.plugins.load(backend, runtime=wanted)
        except LookupError as e:
            raise UsageError(str(e.args[0])) from None
    return wanted


def method_of(program: pteron.Program, name: str | None) -> str:
    """The method that was asked for, `forward`, or the only one."""
    if name is not None:
        return name
    methods = program.methods
    if "forward" in methods or len(methods) != 1:
        return "forward"
    return methods[0]


def print_json(value: Any) -> None:
    """One JSON document."""
    print(json.dumps(value, indent=2))


def write_file(path: Path, content: bytes | str) -> None:
    """Writes a file whole or not at all: under another name in the same folder, which then takes its place.
    Devices and pipes are written as they are.

    Raises:
        OSError: it cannot be written; nothing is left behind.
    """
    write_files({path: content.encode() if isinstance(content, str) else content})


def write_files(contents: Mapping[Path, bytes]) -> None:
    """As `write_file`, several files: they take their names when all of them are written.

    Raises:
        OSError: one cannot be written; nothing is left behind.
    """
    with ExitStack() as stack:
        for path, content in contents.items():
            target = path.resolve()
            if target.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
            if target.exists() and not target.is_file():
                try:
                    target.write_bytes(content)
                except OSError as e:
                    raise OSError(e.errno, e.strerror, str(path)) from None
                continue
            file = stack.enter_context(new_file(path))
            file.write(content)
            # What a full disk refuses is to be known before any file has its name.
            file.flush()


def inputs_beside(path: Path) -> Path:
    """Where the inputs of a program that is written to `path` go.

    Raises:
        UsageError: to the same file.
    """
    inputs = path.with_suffix(".npz")
    if inputs == path:
        raise UsageError(f"{path}: the inputs are written to this name; name the program .pte")
    return inputs


def check_writable(path: Path) -> None:
    """Says before long work that a file cannot be written in the end.

    Raises:
        OSError: a file in that folder cannot be made, or something that is no file has the name.
    """
    target = path.resolve()
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if target.exists() and not target.is_file():
        raise OSError(errno.EINVAL, "not a regular file: name another one", str(path))
    try:
        with tempfile.TemporaryFile(dir=target.parent):
            pass
    except OSError as e:
        raise OSError(e.errno, e.strerror, str(path)) from None


@contextmanager
def new_file(path: Path) -> Iterator[IO[bytes]]:
    """An open file that takes its name when all is written.

    Raises:
        OSError: it cannot be written; nothing is left behind.
    """
    target = path.resolve()
    name = None
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with os.fdopen(handle, "w+b") as file:
            yield file
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, target)
    except BaseException as e:
        if name is not None:
            os.unlink(name)
        if isinstance(e, OSError) and (name is None or e.filename in (None, name)):
            # The system's text may name the other name, which means nothing to the user.
            raise OSError(e.errno, e.strerror, str(path)) from None
        raise
