"""Which cargo feature of pteron-runtime leaves an operator out of a binary.

`operator_features.txt` is a copy of `rust/pteron-kernels/src/features.txt`, which a test of that crate writes
from the tables of operators; `make bless-rust` brings both up to date.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path


def feature_of(operator: str) -> str | None:
    """The feature of an operator, `aten::sort.values`; None where it is always there or has no kernel."""
    return _features().get(operator)


@cache
def _features() -> dict[str, str]:
    lines = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split(": ", 1) for line in lines)
    return {name: feature for feature, names in pairs for name in names.split()}
