"""Kernels of custom operators that cannot be registered, or that do not do what the program states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import pteron
from tests.support.programs import MethodBuilder, build

X = np.zeros((2, 3), np.float32)


def _program(*, names_output: bool = True) -> bytes:
    m = MethodBuilder()
    x, out = m.input(m.tensor([2, 3], planned=False)), m.output(m.tensor([2, 3]))
    m.call("t::op.out", [x, out, out] if names_output else [x, out])
    return build(m)


def _called(kernel: Callable[..., Any], **options: Any) -> Callable[[], object]:
    def call() -> None:
        runtime = pteron.Runtime()
        pteron.register_kernel("t::op", kernel, runtime=runtime, **options)
        pteron.load(_program(), runtime=runtime).load_method()(X)

    return call


def _loaded(program: bytes, *, has_kernel: bool) -> Callable[[], object]:
    def call() -> None:
        runtime = pteron.Runtime()
        if has_kernel:
            pteron.register_kernel("t::op", lambda x: x, runtime=runtime)
        pteron.load(program, runtime=runtime).load_method()

    return call


def _registered(name: str, times: int = 1) -> Callable[[], object]:
    def call() -> None:
        runtime = pteron.Runtime()
        for _ in range(times):
            pteron.register_kernel(name, lambda x: x, runtime=runtime)

    return call


def _keeping(kept: list[Any]) -> Callable[..., Any]:
    def kernel(x: Any) -> Any:
        kept.append(x)
        return np.array(x)

    return kernel


def _raising(x: Any) -> Any:
    raise LookupError("no such row")


CALLS: dict[str, Callable[[], object]] = {
    "a kernel under a name without namespace": _registered("op"),
    "a kernel for an operator that has one": _registered("t::op", 2),
    "a kernel for an operator of the runtime": _registered("aten::add"),
    "a custom operator without kernel": _loaded(_program(), has_kernel=False),
    "a custom operator that names no output": _loaded(_program(names_output=False), has_kernel=True),
    "a kernel that gives another element type": _called(lambda x: x.astype("float64")),
    "a kernel that gives another shape": _called(lambda x: x.T),
    "a kernel that gives another number of results": _called(lambda x: (x, x)),
    "a kernel that gives no array": _called(lambda x: None),
    "a kernel that writes and returns": _called(lambda x, out: x, writes_outputs=True),
    "a kernel that keeps its argument": _called(_keeping([])),
    "a kernel that raises": _called(_raising),
}
