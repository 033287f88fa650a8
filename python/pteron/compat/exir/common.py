"""Operator schemas by name, out arguments, and a few settings of the interpreter that tools change."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def no_dispatch() -> Iterator[None]:
    """Inside, modes and subclasses of tensors are not asked."""
    guard = torch._C._DisableTorchDispatch()
    try:
        yield
    finally:
        del guard


def get_schema_for_operators(ops: Sequence[str]) -> dict[str, str]:
    """`"namespace::name.overload"` → its schema as text, for names like "torch.ops.aten.cat.default"."""
    known = {
        f"{schema.name}.{schema.overload_name or 'default'}": str(schema)
        for schema in torch._C._jit_get_all_schemas()
    }
    found = {}
    for op in ops:
        namespace, dot, rest = op.removeprefix("torch.ops.").partition(".")
        name = f"{namespace}::{rest}" if dot and op.startswith("torch.ops.") else op
        found[name] = known.get(name, "<No Schema Found>")
    return found


def extract_out_arguments(
    schema: torch._C.FunctionSchema, keyword_args: Mapping[str, Any]
) -> tuple[str, Any] | list[tuple[str, Any]]:
    """(name, value) of the given out argument, or a list of these where there are several or none."""
    given = [
        (argument.name, keyword_args[argument.name])
        for argument in schema.arguments
        if argument.is_out and argument.name in keyword_args
    ]
    # A few overloads write into a list of tensors, which their schema does not mark.
    if not given and "out" in keyword_args:
        given = [("out", keyword_args["out"])]
    return given[0] if len(given) == 1 else given


def format_schema_name(schema: torch._C.FunctionSchema) -> str:
    """`name.overload`, or the name alone for the overload without one."""
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name


@contextmanager
def override_logger(
    newLevel: int = logging.DEBUG,  # noqa: N803 -- callers write this name
    fmtstr: str = "%(message)s",
    filename: str | None = None,
) -> Iterator[None]:
    """Inside, the root logger has another level and form, and writes to `filename` too."""
    root = logging.getLogger()
    level, formatters = root.level, [(handler, handler.formatter) for handler in root.handlers]
    root.setLevel(newLevel)
    if fmtstr:
        for handler in root.handlers:
            handler.setFormatter(logging.Formatter(fmtstr))
    added = logging.FileHandler(filename, mode="w") if filename else None
    if added is not None:
        root.addHandler(added)
    try:
        yield
    finally:
        root.setLevel(level)
        for handler, formatter in formatters:
            handler.setFormatter(formatter)
        if added is not None:
            root.removeHandler(added)
            added.close()


@contextmanager
def setting_python_recursive_limit(limit: int = 10000) -> Iterator[None]:
    """Inside, the recursion limit is at least `limit`."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, limit))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
