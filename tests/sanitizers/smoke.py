"""A little of everything that the run half does, on portable kernels: what valgrind runs."""

from __future__ import annotations

import contextlib
import gc
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pteron
from tests.support.programs import (
    MethodBuilder,
    add_method,
    build,
    counter_method,
    delegate_method,
    endless_method,
)

X = np.arange(6, dtype=np.float32).reshape(2, 3)


class Sum:
    num_outputs = 1

    def execute(self, ctx: Any, inputs: Any, outputs: Any) -> None:
        if np.asarray(inputs[0])[0, 0] < 0:
            raise ValueError("negative")
        np.asarray(outputs[0])[...] = np.asarray(inputs[0]) + np.asarray(inputs[1])


class Backend:
    def init(self, ctx: Any, processed: memoryview, specs: Any) -> Sum:
        return Sum()


def picture() -> MethodBuilder:
    """A convolution, adaptive pooling, a product and softmax."""
    rng = np.random.default_rng(0)
    m = MethodBuilder()
    x = m.input(m.tensor([1, 3, 7, 9]), "x")
    weight, bias = m.constant(rng.random((5, 3, 3, 3), np.float32)), m.constant(rng.random(5, np.float32))
    made, pooled = m.tensor([1, 5, 7, 9]), m.tensor([1, 5, 2, 3])
    one, same, none = m.int_list([1, 1]), m.int_list([1, 1]), m.int_list([0, 0])
    arguments = [x, weight, bias, one, same, one, m.bool(False), none, m.int(1), made, made]
    m.call("aten::convolution.out", arguments)
    m.call("aten::_adaptive_avg_pool2d.out", [made, m.int_list([2, 3]), pooled, pooled])
    flat, product, out = m.tensor([1, 30]), m.tensor([1, 4]), m.tensor([1, 4])
    m.call("aten::view_copy.out", [pooled, m.int_list([1, 30]), flat, flat])
    matrix = m.constant(rng.random((30, 4), np.float32))
    m.call("aten::mm.out", [flat, matrix, product, product])
    m.call("aten::_softmax.out", [product, m.int(1), m.bool(False), out, out])
    m.output(out)
    return m


def main() -> None:
    runtime = pteron.Runtime(isa="portable", num_threads=2)
    pteron.register_backend("Sum", Backend(), runtime=runtime)
    given = np.random.default_rng(1).random((1, 3, 7, 9), np.float32)
    for rules in ([], ["all"]):
        other = pteron.Runtime(isa="portable", num_threads=2, disabled_rules=rules)
        (out,) = pteron.load(build(picture()), runtime=other).load_method().execute([given])
        np.testing.assert_allclose(out.sum(), 1, rtol=1e-5)
    program = pteron.load(build(delegate_method("Sum")), runtime=runtime)
    method = program.load_method()
    np.testing.assert_array_equal(method(X, X), 2 * X)
    with contextlib.suppress(pteron.DelegateError):
        method(X - 1, X)
    with contextlib.suppress(pteron.DelegateError):
        program.run("forward", X - 1, X)
    (lent,) = method.execute([X, X], copy=False)
    view = np.asarray(lent)
    del program, method, lent
    gc.collect()
    np.testing.assert_array_equal(view, 2 * X)
    counter = pteron.load(build(counter_method()), runtime=runtime).load_method()
    counter(np.ones(2, np.float32))
    counter.set_state(counter.get_state())
    counter.reset_state()
    with contextlib.suppress(pteron.DeadlineExceeded):
        pteron.load(build(endless_method()), runtime=runtime).load_method().execute([X, X], deadline=0.1)
    data = bytearray(build(add_method()))
    for at in range(0, len(data), 7):
        damaged = bytearray(data)
        damaged[at] ^= 0x40
        with contextlib.suppress(pteron.PteronError):
            pteron.load(bytes(damaged), runtime=runtime).load_method().execute([X, X], budget=1000)
    print("done")


main()
