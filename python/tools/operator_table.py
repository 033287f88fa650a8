"""Writes `docs/reference/operators.md`: every operator, and which kernel each element type gets.

    python python/tools/operator_table.py           writes the page
    python python/tools/operator_table.py --check   fails where the page is not what the kernels give

Nothing is listed by hand: for each operator of the table a call of the operator cases (`tests/ops`) is made
with its main tensors in every element type, and the program that holds it is asked for its kernel, on the
portable instruction set.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import pteron  # noqa: E402
from pteron import _native  # noqa: E402
from tests.ops.dtype_probe import cast, main_dtype, results  # noqa: E402
from tests.ops.operator_case import OperatorCase  # noqa: E402
from tests.ops.operator_cases import every_case  # noqa: E402
from tests.ops.runtime_call import program_of  # noqa: E402
from tests.ops.sample_tensors import ALL  # noqa: E402
from tests.ops.tolerance import TOLERANCE  # noqa: E402

PAGE = ROOT / "docs" / "reference" / "operators.md"
DTYPES = [*ALL, torch.complex64]
MOST_CALLS = 4
HEADINGS = ["f32", "f64", "f16", "bf16", "i8", "i16", "i32", "i64", "u8", "bool", "c64"]

HEAD = """# Operators

The operators of the kernel table: out-variants under the names that program files have. Written by
`python/tools/operator_table.py`; `make check` compares.

`F`: a fast kernel takes one of the operator's first calls among the cases; with other arguments it may
leave the call to the plain kernel. `r`: the plain kernel of the operator's row does
(`rust/pteron-kernels/src/ops`). Empty: the call is refused when the program is loaded, as eager PyTorch
refuses it, but for the rows of
`REFUSED_HERE` in `tests/ops/test_dtypes.py`. A column stands for the dtype of the main operands; what an
operator also takes by type promotion has no column. Rows without letters are of operators whose calls have
no main tensor, or no result that can be compared (`CALLED_ELSEWHERE` in
`tests/ops/test_operator_coverage.py` says which test runs them).

| about an operator | page |
|---|---|
| which kernel takes which element type, and the tolerance of its results | this page |
| the largest error of a function of one float32 number, in ulps | [accuracy](accuracy.md) |
| what it was compared with eager PyTorch on, and where the two differ | [comparison](operator-proof.md) |
| why it has no kernel | [operators without a kernel](operators-without-kernel.md) |

## Tolerances

Results are compared with eager PyTorch's within these bounds (`tests/ops/tolerance.py`, the one table of
them), relative, and absolute where the largest result is one or more; all other dtypes are exact. Results of
16-bit floats are compared with eager's in float64, rounded once (`tests/ops/wide_oracle.py`): a bound of one
step of the dtype, absolute only as far as float32 is off.

| dtype | tolerance |
|---|---|
"""


def calls_by_operator() -> dict[str, list[OperatorCase]]:
    """For every operator its calls, those in float32 first."""
    found: dict[str, list[OperatorCase]] = {}
    for case in every_case():
        if main_dtype(case) is not None:
            found.setdefault(case.name, []).append(case)
    for cases in found.values():
        cases.sort(key=lambda case: main_dtype(case) != torch.float32)
    return found


def _results(case: OperatorCase) -> list[torch.Tensor] | None:
    try:
        return results(case)
    except (ValueError, AssertionError, KeyError):
        # What the quantised operators raise on another dtype.
        return None


def kernel_of(case: OperatorCase, dtype: torch.dtype, runtime: pteron.Runtime) -> str:
    """`F`, `r`, or nothing where the call is refused."""
    main = main_dtype(case)
    moved = replace(case, args=tuple(cast(a, main, dtype) for a in case.args))
    outputs = _results(moved)
    if outputs is None or any(t.dtype in (torch.complex32, torch.complex128) for t in outputs):
        outputs = [r.to(dtype) if r.dtype == main else r for r in _results(case) or []]
    try:
        program, _ = program_of(moved, moved.room(outputs), runtime)
        kernels = program.kernels("forward")
    except (pteron.PteronError, KeyError):
        return ""
    return "r" if all(name == "reference" for name in kernels) else "F"


def letter(cases: list[OperatorCase], dtype: torch.dtype, runtime: pteron.Runtime) -> str:
    """That of the first calls: `F` if one of them gets a fast kernel."""
    found = ""
    for case in cases:
        found = kernel_of(case, dtype, runtime) or found
        if found != "r":
            break
    return found


def row(name: str, cases: list[OperatorCase], runtime: pteron.Runtime) -> str:
    """The line of an operator: of its first calls that eager PyTorch takes."""
    taken = list(itertools.islice((c for c in cases if _results(c) is not None), MOST_CALLS))
    return f"| `{name}` | " + " | ".join(letter(taken, dtype, runtime) for dtype in DTYPES) + " |"


def page() -> str:
    """The whole page."""
    runtime = pteron.Runtime(isa="portable")
    calls = calls_by_operator()
    names = _native.operator_names()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = [row(name, calls.get(name, []), runtime) for name in names]
    tolerances = [f"| {str(d).removeprefix('torch.')} | {t:g} |" for d, t in TOLERANCE.items()]
    text = HEAD + "\n".join(tolerances) + f"\n\n## {len(names)} operators\n\n"
    text += "| operator | " + " | ".join(HEADINGS) + " |\n|---|" + "---|" * len(HEADINGS) + "\n"
    return text + "\n".join(rows) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="Writes docs/reference/operators.md.")
    parser.add_argument("--check", action="store_true", help="compare only")
    is_check = parser.parse_args().check
    torch.set_num_threads(1)
    text = page()
    if not is_check:
        PAGE.write_text(text)
        return 0
    known = PAGE.read_text() if PAGE.exists() else ""
    if known == text:
        return 0
    differing = sorted(set(text.splitlines()) ^ set(known.splitlines()))
    print("docs/reference/operators.md is not what the kernels give; run `make operators`")
    print("\n".join(differing[:20]))
    return 1


if __name__ == "__main__":
    sys.exit(main())
