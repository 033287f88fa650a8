"""Calls at the edges, made from one call of every operator; eager PyTorch's answers must come.

Each variant changes one thing: shapes (empty, without dimensions, ranks up to 8, one extent of 1 or shorter),
memory (transposed, expanded, strided, channels-last), values (NaN, infinities, zeros with signs, the largest
and smallest numbers), or one setting (dimensions from either end and outside, numbers from negative to NaN,
switches turned).
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from tests.ops.dtype_probe import cast, main_dtype, representatives
from tests.ops.op_db.recording import RecordedCall, Recorder, owned, snapshot
from tests.ops.operator_cases import every_case

# Eager PyTorch's own gradients call these with shapes that it made itself: it checks little of what others
# pass, and reads and writes outside of memory (some variants end the process). Gradients have cases.
_LEFT_OUT = ("*_backward.default", "aten._native_batch_norm_legit.no_stats", "aten.lu_unpack.default")

# Of these the first group of variants or the second is left out: of matrices without meaning (singular, not
# finite) LAPACK does not define the results; the settings of transforms eager PyTorch's kernels do not check.
_WITHOUT_CONTENTS = (
    "aten.*linalg_*",
    "aten.cholesky*",
    "aten.geqrf*",
    "aten.ormqr*",
    "aten.triangular_solve*",
    "aten.linalg_lu*",
)
_WITHOUT_SETTINGS = ("aten._fft_*", "aten.*linalg_svd*")

Change = Callable[[torch.Tensor], torch.Tensor]
_MOST_ELEMENTS = 4096


@dataclass
class Variant:
    """A changed call: arguments for the operator of `base`, and what was changed."""

    base: RecordedCall
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    note: str

    def recorded(self) -> RecordedCall:
        """The call with eager PyTorch's answer, or its refusal."""
        args, kwargs = snapshot((self.args, self.kwargs))
        try:
            result = self.base.op(*args, **kwargs)
        except Exception as error:
            return RecordedCall(self.base.op, self.args, self.kwargs, None, str(error).splitlines()[0])
        tensors = [result] if isinstance(result, torch.Tensor) else list(result)
        return RecordedCall(self.base.op, self.args, self.kwargs, [owned(t) for t in tensors])


def bases(dtype: torch.dtype | None = None) -> Iterator[RecordedCall]:
    """One small call of every operator that has cases, main tensors in `dtype` if it is given."""
    for case in representatives(every_case()):
        recorder = Recorder()
        main = main_dtype(case)
        args = tuple(cast(a, main, dtype) if dtype is not None else a for a in case.args)
        try:
            with recorder:
                (case.function or getattr(torch.ops.aten, case.operator))(*args, **case.kwargs)
        except Exception:
            # Eager PyTorch does not take the dtype: test_dtypes.py asks that of every operator.
            continue
        leaves = [t for t in tree_leaves((case.args, case.kwargs)) if isinstance(t, torch.Tensor)]
        is_small = sum(t.numel() for t in leaves) <= _MOST_ELEMENTS
        call = next((c for c in recorder.calls if c.expected is not None), None)
        if call is not None and is_small and not _is_among(call, _LEFT_OUT):
            yield call


def _is_among(call: RecordedCall, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(str(call.op), pattern) for pattern in patterns)


def variants(call: RecordedCall) -> Iterator[Variant]:
    """All variants of a call."""
    tensors = [t for t in tree_leaves(call.args) if isinstance(t, torch.Tensor)]
    if not tensors:
        return
    changes = [*_shapes(tensors[0])]
    if call.op is not torch.ops.aten.as_strided_copy.default:
        # That one reads memory as it lies, which a program's input does not keep.
        changes += _memory(tensors[0])
    if not _is_among(call, _WITHOUT_CONTENTS):
        changes += _contents(tensors[0])
    for note, change in changes:
        for which, chosen in _targets(tensors):
            try:
                args = tree_map_only(
                    torch.Tensor, lambda t, c=change, w=chosen: c(t) if id(t) in w else t, call.args
                )
            except (RuntimeError, IndexError):
                continue
            yield Variant(call, args, call.kwargs, f"{note} {which}")
    if not _is_among(call, _WITHOUT_SETTINGS):
        yield from _settings(call, tensors[0])


def _targets(tensors: list[torch.Tensor]) -> list[tuple[str, set[int]]]:
    """Which tensors are changed: the first, all of its shape and dtype, the second."""
    first = tensors[0]
    alike = {id(t) for t in tensors if t.shape == first.shape and t.dtype == first.dtype}
    targets = [("of the first", {id(first)})]
    if len(alike) > 1:
        targets.append(("of all alike", alike))
    if len(tensors) > 1:
        targets.append(("of the second", {id(tensors[1])}))
    return targets


def _shapes(first: torch.Tensor) -> Iterator[tuple[str, Change]]:
    rank = first.dim()
    yield "no dimensions", lambda t: t.reshape(-1)[:1].reshape(())
    yield "no elements", lambda t: t.reshape(-1)[:0]
    for d in range(rank):
        yield f"dimension {d} empty", lambda t, d=d: t.narrow(d, 0, 0).clone()
        yield f"dimension {d} of 1", lambda t, d=d: t.narrow(d, 0, 1).clone()
        yield f"dimension {d} shorter", lambda t, d=d: t.narrow(d, 0, max(t.shape[d] - 1, 0)).clone()
    for more in range(1, 9 - rank):
        if more <= 2 or rank + more in (5, 8):
            yield f"rank {rank + more}", lambda t, n=more: t[(None,) * n].clone()
    yield "rank 8 at its end", lambda t: t.reshape(*t.shape, *[1] * (8 - t.dim())).clone()
    if rank:
        yield "first dimension gone", lambda t: t.select(0, 0).clone()
        yield "last dimension gone", lambda t: t.select(-1, 0).clone()


def _memory(first: torch.Tensor) -> Iterator[tuple[str, Change]]:
    rank = first.dim()
    if rank >= 2:
        yield "transposed", lambda t: t.transpose(0, -1).contiguous().transpose(0, -1)
        yield "rows swapped", lambda t: t.transpose(-1, -2).contiguous().transpose(-1, -2)
    if rank == 4:
        yield "channels last", lambda t: t.contiguous(memory_format=torch.channels_last)
    if rank >= 1:
        yield "expanded", lambda t: t.narrow(0, 0, 1).expand(t.shape)
        yield "every other", lambda t: t.repeat_interleave(2, -1)[..., ::2]
        yield "backwards", lambda t: t.flip(0)


def _contents(first: torch.Tensor) -> Iterator[tuple[str, Change]]:
    if first.dtype.is_floating_point:
        info = torch.finfo(first.dtype)
        numbers = [math.nan, math.inf, -math.inf, 0.0, -0.0, info.max, info.min, info.tiny, -info.eps, 1.5]
    elif first.dtype == torch.bool:
        numbers = [True, False]
    else:
        whole = torch.iinfo(first.dtype)
        numbers = [whole.max, whole.min, 0, 1, whole.max - 1, whole.min + 1]
    for number in numbers:
        yield f"all {number}", lambda t, n=number: torch.full_like(t, n)

    def mixed(t: torch.Tensor) -> torch.Tensor:
        count = t.numel()
        pattern = torch.tensor(numbers, dtype=t.dtype).repeat(count // len(numbers) + 1)[:count]
        return pattern.reshape(t.shape)

    yield "edge values", mixed


def _settings(call: RecordedCall, first: torch.Tensor) -> Iterator[Variant]:
    rank = first.dim()
    for i, argument in enumerate(call.op._schema.arguments):
        if i < len(call.args):
            value = call.args[i]
        elif argument.name in call.kwargs:
            value = call.kwargs[argument.name]
        else:
            value = argument.default_value
        for other in _others(argument.name, value, rank):
            args, kwargs = list(call.args), dict(call.kwargs)
            if i < len(args):
                args[i] = other
            else:
                kwargs[argument.name] = other
            yield Variant(call, tuple(args), kwargs, f"{argument.name}={other}")


def _others(name: str, value: Any, rank: int) -> list[Any]:
    """Other values of a setting."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        ends = [0, -1, rank - 1, -rank, rank, -rank - 1] if "dim" in name else [-2, -1, 0, 1, 2, 3]
        return [n for n in dict.fromkeys(ends) if n != value]
    if isinstance(value, float):
        return [v for v in (0.0, -0.0, -1.5, 0.5, 2.0, math.inf, -math.inf, math.nan, 1e38) if v != value]
    if isinstance(value, (list, tuple)) and value and all(isinstance(v, bool) for v in value):
        return [[not v for v in value], [False] * len(value)]
    if isinstance(value, (list, tuple)) and all(isinstance(v, int) for v in value):
        if "dim" in name:
            return [
                [],
                [0],
                [-1],
                [0, 0],
                [rank],
                [-rank],
                [-rank - 1],
                list(range(rank)),
                list(range(rank))[::-1],
            ]
        return [[n] * len(value) for n in (-1, 0, 1, 2, 3)] + [list(value[:-1]), [*value, 1]]
    return []
