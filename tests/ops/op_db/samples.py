"""The distinct calls behind PyTorch's own operator samples."""

from __future__ import annotations

import hashlib
import itertools
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch._ops import OpOverload
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils._pytree import tree_leaves

from tests.ops.op_db.judging import is_storable
from tests.ops.op_db.recording import RecordedCall, Recorder
from tests.ops.operator_case import memory_bytes

DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.bool,
    torch.complex64,
]
# They compile for a GPU.
_LEFT_OUT = ("jiterator",)


def operators() -> list[OpInfo]:
    """Every operator with samples."""
    return [info for info in op_db if not info.name.startswith(_LEFT_OUT)]


class Collector:
    """Gathers the distinct calls of the first `samples` samples of an operator and dtype, at most `most` of
    one overload and dtype.
    """

    def __init__(self, most: int, samples: int = 24) -> None:
        self.most = most
        self.samples = samples
        self.seen: set[bytes] = set()
        self.counts: Counter[tuple[str, str]] = Counter()
        self.without_kernel: set[str] = set()

    def calls(self, info: OpInfo, dtype: torch.dtype) -> Iterator[RecordedCall]:
        """New calls of the samples of an operator in a dtype, and of the inputs that must be refused."""
        torch.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            recorder = Recorder(self.has_room)
            inputs = itertools.islice(info.sample_inputs("cpu", dtype, requires_grad=False), self.samples)
            errors = (e.sample_input for e in _error_inputs(info, dtype))
            for sample in itertools.chain(inputs, errors):
                _call(recorder, info, sample)
                yield from self.new(recorder.calls)
                recorder.calls.clear()
        self.without_kernel |= recorder.without_kernel

    def has_room(self, op: OpOverload, args: tuple[Any, ...]) -> bool:
        """Are there less than `most` calls of the overload and dtype?"""
        return self.counts[_group(op, args)] < self.most

    def new(self, calls: Iterable[RecordedCall]) -> Iterator[RecordedCall]:
        """Those that were not there before."""
        for call in calls:
            if not is_storable(call):
                continue
            group = _group(call.op, call.args)
            if self.counts[group] >= self.most:
                continue
            digest = _digest(call)
            if digest not in self.seen:
                self.seen.add(digest)
                self.counts[group] += 1
                yield call


def _group(op: OpOverload, args: tuple[Any, ...]) -> tuple[str, str]:
    return str(op), first_dtype(args)


def first_dtype(args: tuple[Any, ...]) -> str:
    """The dtype of the first tensor among arguments."""
    for arg in args:
        for leaf in arg if isinstance(arg, (list, tuple)) else [arg]:
            if isinstance(leaf, torch.Tensor):
                return str(leaf.dtype).removeprefix("torch.")
    return "none"


def _call(recorder: Recorder, info: OpInfo, sample: Any) -> None:
    try:
        with torch.no_grad(), recorder:
            info(sample.input, *sample.args, **sample.kwargs)
    except Exception:
        # The recorder has what was refused; samples that PyTorch cannot run as they are tell nothing else.
        return


def _error_inputs(info: OpInfo, dtype: torch.dtype) -> Iterator[Any]:
    if dtype is torch.float32 and info.error_inputs_func is not None:
        yield from info.error_inputs("cpu")


def _digest(call: RecordedCall) -> bytes:
    parts = hashlib.blake2b(str(call.op).encode(), digest_size=16)
    for leaf in tree_leaves((call.args, call.kwargs)):
        if isinstance(leaf, torch.Tensor):
            parts.update(f"{leaf.dtype}{tuple(leaf.shape)}{leaf.stride()}".encode())
            parts.update(memory_bytes(leaf))
        else:
            parts.update(repr(leaf).encode())
    return parts.digest()
