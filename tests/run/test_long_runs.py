"""A process that runs for long: its memory does not grow with the number of calls, whatever their shapes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.own_interpreter import output_of

pytestmark = [
    pytest.mark.alone,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads memory from /proc"),
]

CALLS = """
    import gc, random
    import numpy as np, pteron
    from pathlib import Path
    from tests.support.programs import MethodBuilder, build

    def resident():
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))

    m = MethodBuilder()
    dims = [{"symbol": "rows", "min": 1, "max": 64}, 256]
    x = m.input(m.tensor([64, 256], dynamic=True), "x", dims)
    w = m.constant(np.random.default_rng(0).random((256, 256), np.float32) - 0.5)
    product, out = m.tensor([64, 256], dynamic=True), m.output(m.tensor([64, 256], dynamic=True))
    m.ranges[out] = dims
    m.call("aten::mm.out", [x, w, product, product])
    m.call("aten::relu.out", [product, out, out])
    program = pteron.load(build(m))
    session, predictor = program.load_method(), pteron.Predictor(program, buckets=(8, 64))
    chance = random.Random(0)

    def call(n):
        given = np.ones((chance.randint(1, 64), 256), np.float32)
        if n % 3 == 0:
            session(given)
        elif n % 3 == 1:
            program.run("forward", given)
        else:
            predictor({"x": given})

    for n in range(1_000):
        call(n)
    gc.collect()
    before = resident()
    for n in range(10_000):
        call(n)
    gc.collect()
    print(resident() - before)
"""


def test_ten_thousand_calls_of_varying_shape_leave_memory_as_it_was() -> None:
    assert int(output_of(CALLS)) < 1024, "KiB beyond what a thousand calls took"
