"""What notebooks show of `Program` and `Method`: values with types and sizes, as tables."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from pteron._native import Method, Program, ValueSpec
from pteron.devtools.html_table import html_table
from pteron.devtools.text_table import size_text

HEADINGS = ("value", "role", "type", "shape", "bytes at most")
#: Methods that a notebook shows.
MOST_METHODS = 20


def program_html(program: Program, path: str | None, file_bytes: int) -> str:
    """The file, and a table for each method; the first one is open. Everything of the file is escaped."""
    of = "" if path is None else f" of {path}"
    names = program.methods
    parts = [f"<p>{escape(f'pteron.Program{of}, {size_text(file_bytes)}')}</p>"]
    for at, name in enumerate(names[:MOST_METHODS]):
        rows = [
            *_rows("input", program.inputs(name)),
            *_rows("output", program.outputs(name)),
            *_rows("state", program.buffers(name)),
        ]
        backends = program.backends(name)
        title = f"{name}: {len(program.operators(name))} operators"
        title += f", delegates of {', '.join(backends)}" if backends else ""
        parts.append(_table(title, rows, is_open=at == 0))
    if len(names) > MOST_METHODS:
        parts.append(f"<p>and {len(names) - MOST_METHODS} more methods</p>")
    return "".join(parts)


def method_html(method: Method) -> str:
    """What a session takes and gives. Everything of the file is escaped."""
    rows = [*_rows("input", method.inputs), *_rows("output", method.outputs)]
    return _table(f"pteron.Method {method.name}", rows)


def _rows(role: str, specs: Iterable[ValueSpec]) -> Iterable[tuple[ValueSpec, str]]:
    return ((spec, role) for spec in specs)


def _table(title: str, values: list[tuple[ValueSpec, str]], *, is_open: bool = True) -> str:
    cells = [
        (
            spec.name,
            role,
            spec.dtype or spec.kind,
            _extents(spec),
            "" if spec.nbytes is None else f"{spec.nbytes:,}",
        )
        for spec, role in values
    ]
    most = max((spec.nbytes or 0 for spec, _ in values), default=0) or 1
    return html_table(
        title, HEADINGS, cells, [(spec.nbytes or 0) / most for spec, _ in values], is_open=is_open
    )


def _extents(spec: ValueSpec) -> str:
    """`[s0=1..8, 3]` of a tensor; of a number its range or value, where the file has one."""
    if spec.shape is not None:
        return f"[{', '.join(map(str, spec.shape))}]"
    if spec.range is not None:
        return "..".join(map(str, spec.range))
    return "" if spec.value is None else str(spec.value)
