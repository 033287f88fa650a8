"""Tools that explain a program: profiles, comparisons, sizes, records of runs, test cases.

`Inspector`, `ETRecord` and their like have ExecuTorch's names. Nothing is imported before it is asked for.
`profile`, `compare`, `report` and `size_report` are modules that can be called like their function:
`pteron.devtools.profile(program, inputs)`.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "BundledProgram": "pteron.devtools.bundled_program",
    "ETRecord": "pteron.devtools.etrecord",
    "EtdumpRecorder": "pteron.devtools.etdump",
    "Inspector": "pteron.devtools.inspector",
    "TimeScale": "pteron.devtools.inspector",
    "first_non_finite": "pteron.devtools.non_finite",
    "generate_etrecord": "pteron.devtools.etrecord",
    "memory_report": "pteron.devtools.session_memory",
    "parse_etrecord": "pteron.devtools.etrecord",
    "read_etdump": "pteron.devtools.etdump",
    "record_etdump": "pteron.devtools.etdump",
    "write_etdump": "pteron.devtools.etdump",
}

#: Modules that can be called like their function.
_CALLABLE = ("compare", "profile", "report", "size_report")

__all__ = sorted([*_HOMES, *_CALLABLE])


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name in _CALLABLE:
        return import_module(f"{__name__}.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
