"""One recorded call, run by `pteron` or by the reference kernels, and what is to be said about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

import pteron
from pteron.exir.edge.out_variant import out_variant
from tests.ops.op_db.recording import RecordedCall, owned
from tests.ops.operator_case import OperatorCase, dense
from tests.ops.reference_process import KernelRefused
from tests.ops.tolerance import TOLERANCE, describe_difference
from tests.ops.wide_oracle import SIXTEEN_BITS, Call, in_float64, rounded_once

Run = Callable[[OperatorCase, list[torch.Tensor]], list[torch.Tensor]]


class Outcome(Enum):
    """What became of a call."""

    AGREES = "agrees"
    DIFFERS = "differs"
    REFUSED = "refused, eager PyTorch takes it"
    TAKEN = "taken, eager PyTorch refuses it"
    ENDS = "ends the process"
    EAGER_ENDS = "ends the process of eager PyTorch, not the runtime's"


@dataclass
class Verdict:
    """The outcome of a call, and the words for it where it is not agreement."""

    outcome: Outcome
    detail: str = ""


def case_of(call: RecordedCall) -> OperatorCase:
    """The call of the out variant."""
    out = out_variant(call.op)
    namespace, operator = call.op._schema.name.split("::")
    # Some out variants are of ours: their torch library has a name of its own.
    library = out._schema.name.split("::")[0]
    overload = out._schema.overload_name
    return OperatorCase(operator, overload, call.args, call.kwargs, library=library, namespace=namespace)


def is_storable(call: RecordedCall) -> bool:
    """Can a program hold arguments and results? Complex numbers, generators, sparse tensors and those of
    complex32 or complex128 it cannot, nor a tensor that is a part of another's memory, which only
    `as_strided` sees.
    """
    if call.op is torch.ops.aten.as_strided_copy.default:
        base = call.args[0]
        if base.untyped_storage().nbytes() != base.numel() * base.element_size():
            return False
    for leaf in tree_leaves((call.args, call.kwargs, call.expected)):
        if isinstance(leaf, (complex, torch.Generator)):
            return False
        if isinstance(leaf, torch.Tensor) and (leaf.layout is not torch.strided or leaf.is_quantized):
            return False
        if isinstance(leaf, torch.Tensor) and leaf.dtype in (torch.complex32, torch.complex128):
            return False
    return True


def judge(call: RecordedCall, run: Run) -> Verdict:
    """Runs a call and compares it with what eager PyTorch answered."""
    case = case_of(call)
    if call.expected is None:
        return _judge_refusal(case, run)
    answered = rounded_once(case.name, _answers(call), call.args, call.kwargs, call.expected)
    expected = [_laid_out(call, t) for t in answered]
    try:
        got = run(case, expected)
    except (pteron.PteronError, KernelRefused) as error:
        return Verdict(Outcome.REFUSED, str(error).splitlines()[0])
    exact: list[torch.Tensor] | None = None
    for i, (mine, theirs) in enumerate(zip(got, expected, strict=True)):
        problem = describe_difference(mine, theirs, case.name)
        if problem is not None and theirs.dtype in TOLERANCE and theirs.dtype not in SIXTEEN_BITS:
            exact = exact or in_float64(_answers(call), call.args, call.kwargs)
            problem = describe_difference(mine, theirs, case.name, exact[i] if exact else None)
        if problem is not None and is_same_choice(call, i, mine, theirs):
            problem = None
        if problem is not None:
            return Verdict(Outcome.DIFFERS, f"output {i}: {problem}")
    return Verdict(Outcome.AGREES)


def _laid_out(call: RecordedCall, expected: torch.Tensor) -> torch.Tensor:
    """A result as memory is planned for it: of a result whose size the data decides in rows."""
    if call.op is torch.ops.aten.nonzero.default:
        return expected.clone(memory_format=torch.contiguous_format)
    return dense(expected)


# Operators of which PyTorch does not say which one of equal elements the index names.
_ANY_OF_EQUAL = frozenset({"aten::median", "aten::nanmedian", "aten::kthvalue", "aten::mode", "aten::topk"})


def is_same_choice(call: RecordedCall, output: int, got: torch.Tensor, expected: torch.Tensor) -> bool:
    """Do two results name equal elements, where the choice among equals is free?"""
    schema = call.op._schema
    name = schema.name
    is_unstable_sort = name == "aten::sort" and not call.kwargs.get("stable")
    if output != 1 or not (name in _ANY_OF_EQUAL or is_unstable_sort) or got.shape != expected.shape:
        return False
    given = dict(zip((a.name for a in schema.arguments), call.args, strict=False)) | call.kwargs
    source, dim = given["self"], given.get("dim", -1)
    if not source.dim() or not bool(((got >= 0) & (got < source.shape[dim])).all()):
        return False
    indices = [got, expected]
    if got.dim() < source.dim():
        indices = [index.unsqueeze(dim) for index in indices]
    mine, theirs = (source.gather(dim, index) for index in indices)
    return bool(((mine == theirs) | (mine.isnan() & theirs.isnan())).all())


def _judge_refusal(case: OperatorCase, run: Run) -> Verdict:
    try:
        run(case, some_outputs(case))
    except (pteron.PteronError, KernelRefused):
        return Verdict(Outcome.AGREES)
    return Verdict(Outcome.TAKEN)


def some_outputs(case: OperatorCase) -> list[torch.Tensor]:
    """Outputs for a call that must be refused, whatever they are."""
    count = len(case.schema.returns)
    leaves = tree_leaves((case.args, case.kwargs))
    first = next((t for t in leaves if isinstance(t, torch.Tensor)), torch.zeros(3))
    return [torch.zeros(first.shape, dtype=first.dtype) for _ in range(max(count, 1))]


def _answers(call: RecordedCall) -> Call:
    """The operator of a call as a function that returns a list."""

    def answers(*args: Any, **kwargs: Any) -> list[torch.Tensor]:
        result = call.op(*args, **kwargs)
        return [owned(t) for t in ([result] if isinstance(result, torch.Tensor) else result)]

    return answers
