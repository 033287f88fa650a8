"""One call of every operator in every element type: whether eager PyTorch takes it, and whether we do."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch

import pteron
from tests.ops.operator_case import OperatorCase
from tests.ops.runtime_call import run_in_runtime
from tests.ops.sample_tensors import ALL


@dataclass
class Probe:
    """What happened to a call in one element type; the results where both took it."""

    case: OperatorCase
    dtype: torch.dtype
    expected: list[torch.Tensor] | None
    got: list[torch.Tensor] | None
    error: str = ""

    @property
    def difference(self) -> str | None:
        """Who refuses what the other takes."""
        if (self.expected is None) == (self.got is None):
            return None
        return "refused here" if self.got is None else "refused by eager"


def representatives(cases: Iterable[OperatorCase]) -> list[OperatorCase]:
    """For every operator the first call that eager takes, in float32 if there is one."""
    found: dict[str, OperatorCase] = {}
    for case in cases:
        dtype = main_dtype(case)
        is_plain = case.name.startswith("aten::") and not case.note and case.largest is None
        if dtype not in ALL or not is_plain:
            continue
        known = found.get(case.name)
        better = known is None or (main_dtype(known) != torch.float32 and dtype == torch.float32)
        if better and results(case) is not None:
            found[case.name] = case
    return list(found.values())


def main_dtype(case: OperatorCase) -> torch.dtype | None:
    """That of the first tensor."""
    return next((t.dtype for a in case.args for t in _tensors(a)), None)


def probe(case: OperatorCase, dtype: torch.dtype) -> Probe:
    """The call with the tensors of its main dtype in another one."""
    main = main_dtype(case)
    moved = replace(case, args=tuple(cast(a, main, dtype) for a in case.args))
    expected = results(moved)
    outputs = expected if expected is not None else guessed_outputs(case, main, dtype)
    try:
        return Probe(moved, dtype, expected, run_in_runtime(moved, moved.room(outputs)))
    except pteron.PteronError as error:
        return Probe(moved, dtype, expected, None, str(error).splitlines()[0])


def probe_all(case: OperatorCase) -> list[Probe]:
    """The call in every element type whose results a program can hold."""
    return [probe(case, dtype) for dtype in ALL if not _gives_other_complex(case, dtype)]


def _gives_other_complex(case: OperatorCase, dtype: torch.dtype) -> bool:
    """Is a result complex, and not of complex64, the only complex type that kernels know?"""
    main = main_dtype(case)
    expected = results(replace(case, args=tuple(cast(a, main, dtype) for a in case.args)))
    return any(t.dtype in (torch.complex32, torch.complex128) for t in expected or [])


def _tensors(value: Any) -> list[torch.Tensor]:
    items = value if isinstance(value, (list, tuple)) else [value]
    return [v for v in items if isinstance(v, torch.Tensor)]


def cast(value: Any, main: torch.dtype | None, dtype: torch.dtype) -> Any:
    """An argument with its tensors of the main dtype in another one."""
    if isinstance(value, (list, tuple)):
        return [cast(v, main, dtype) for v in value]
    if isinstance(value, torch.Tensor) and value.dtype == main:
        return value.to(dtype)
    return value


def results(case: OperatorCase) -> list[torch.Tensor] | None:
    """What eager PyTorch gives; None where it refuses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return case.expected()
        except (RuntimeError, IndexError, NotImplementedError, TypeError):
            return None


def guessed_outputs(case: OperatorCase, main: torch.dtype | None, dtype: torch.dtype) -> list[torch.Tensor]:
    """What the results would be if the operator took the dtype as it takes its own."""
    return [r.to(dtype) if r.dtype == main else r for r in results(case) or []]
