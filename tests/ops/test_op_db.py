"""The calls behind PyTorch's own operator samples against eager PyTorch.

`make test` takes a fixed part: of each operator one dtype and the first samples. `make test-all`
(`PTERON_OPS=all`) takes everything, more than 20 000 calls, and writes to `target/op_db`: calls by operator
and dtype, and every difference by name.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing._internal.opinfo.core import OpInfo

import pteron
from tests.ops.op_db.judging import judge
from tests.ops.op_db.known_differences import KNOWN
from tests.ops.op_db.recording import RecordedCall
from tests.ops.op_db.samples import DTYPES, Collector, operators
from tests.ops.op_db.summary import Summary
from tests.ops.reference_process import ReferenceProcess
from tests.ops.runtime_call import run_in_runtime
from tests.support.extent import only_in

TARGET = Path(__file__).resolve().parents[2] / "target" / "op_db"

full = only_in("OPS")


def recorded(pairs: Iterable[tuple[OpInfo, torch.dtype]], collector: Collector) -> Iterator[RecordedCall]:
    """Distinct calls of operators in dtypes."""
    for info, dtype in pairs:
        if dtype in info.dtypes:
            yield from collector.calls(info, dtype)


def part() -> list[tuple[OpInfo, torch.dtype]]:
    """One dtype of each third operator: another one from operator to operator."""
    pairs = []
    for i, info in enumerate(operators()[::3]):
        known = [dtype for dtype in DTYPES if dtype in info.dtypes]
        if known:
            pairs.append((info, known[i % len(known)] if i % 2 else known[0]))
    return pairs


def check(calls: Iterable[RecordedCall], run: Callable[..., Any], name: str = "") -> Summary:
    """Judges calls and fails with the differences that have no entry in the list of known ones."""
    summary = Summary()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for call in calls:
            summary.add(call, judge(call, run))
    if name:
        TARGET.mkdir(parents=True, exist_ok=True)
        (TARGET / f"{name}.txt").write_text(summary.text())
    assert not summary.unexplained, "\n".join(summary.unexplained[:50])
    return summary


def test_part_of_the_samples_agrees_with_eager() -> None:
    summary = check(recorded(part(), Collector(most=4, samples=4)), run_in_runtime)
    assert sum(summary.calls.values()) >= 800


@full
def test_part_of_the_samples_agrees_with_eager_in_reference_kernels() -> None:
    reference = ReferenceProcess()
    try:
        check(recorded(part()[::4], Collector(most=3, samples=2)), reference.run)
    finally:
        reference.close()


def test_every_known_difference_says_why() -> None:
    assert all(len(known.reason) > 20 for known in KNOWN)
    assert len({(k.operator, k.outcome, k.dtype, k.detail) for k in KNOWN}) == len(KNOWN)


def test_a_wrong_result_is_found() -> None:
    """The harness itself: results that are off in one element, in a shape, or missing."""
    call = next(recorded([(i, torch.float32) for i in operators() if i.name == "add"], Collector(1)))

    def off(case: Any, outputs: list[torch.Tensor]) -> list[torch.Tensor]:
        (result,) = run_in_runtime(case, outputs)
        result.view(-1)[-1] += 1e-3
        return [result]

    with pytest.raises(AssertionError, match="1 of"):
        check([call], off)
    with pytest.raises(AssertionError, match="shape"):
        check([call], lambda case, outputs: [t[None] for t in run_in_runtime(case, outputs)])


@full
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_all_samples_agree_with_eager(dtype: torch.dtype) -> None:
    pairs = [(info, dtype) for info in operators()]
    name = str(dtype).removeprefix("torch.")
    check(recorded(pairs, Collector(most=40, samples=24)), run_in_runtime, f"samples-{name}")


@full
def test_all_samples_agree_with_eager_in_reference_kernels() -> None:
    reference = ReferenceProcess()
    pairs = [(info, torch.float32) for info in operators()]
    try:
        check(recorded(pairs, Collector(most=20, samples=24)), reference.run, "reference-float32")
    finally:
        reference.close()


@full
@pytest.mark.parametrize("isa", ["portable", "avx2"])
def test_all_samples_agree_with_eager_on_other_instruction_sets(isa: str) -> None:
    runtime = pteron.Runtime(isa=isa)
    pairs = [(info, torch.float32) for info in operators()]
    calls = recorded(pairs, Collector(most=20, samples=24))
    check(calls, lambda case, outputs: run_in_runtime(case, outputs, runtime), f"{isa}-float32")
