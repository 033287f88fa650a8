"""Variants at the edges of one call of every operator: results and refusals of eager PyTorch.

`make test` takes a fixed part, `make test-all` (`PTERON_OPS=all`) all of them in four element types.
"""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import torch

from ops.edge_differences import reason_for
from ops.edge_variants import Variant, bases, variants
from ops.op_db.judging import Outcome, case_of, is_storable, judge
from ops.op_db.samples import first_dtype
from ops.runtime_call import run_in_runtime

IS_FULL = os.environ.get("PTERON_OPS") == "all"
TARGET = Path(__file__).resolve().parents[2] / "target" / "op_db"


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small calls: PyTorch's threads would cost more than they give."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def check(found: Iterable[Variant], name: str = "") -> int:
    """Judges variants, fails with the differences that have no reason, and answers how many there were."""
    count, refused, known, unexplained = 0, 0, [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for variant in found:
            call = variant.recorded()
            if not is_storable(call):
                continue
            count += 1
            refused += call.expected is None
            verdict = judge(call, run_in_runtime)
            if verdict.outcome is Outcome.AGREES:
                continue
            detail = verdict.detail or call.error
            line = f"{variant.note}: {case_of(call)}: {verdict.outcome.value}: {detail}"
            reason = reason_for(str(call.op), first_dtype(call.args), verdict.outcome, variant.note, detail)
            (unexplained if reason is None else known).append(line)
    if name:
        TARGET.mkdir(parents=True, exist_ok=True)
        head = f"{count} variants, {refused} refused by eager PyTorch, {len(known)} with a reason to differ"
        (TARGET / f"{name}.txt").write_text("\n".join([head, *unexplained, "", *known]) + "\n")
    assert not unexplained, "\n".join(unexplained[:40])
    return count


def test_part_of_the_variants() -> None:
    """Another eleventh of the variants from operator to operator."""
    part = (itertools.islice(variants(call), i % 11, None, 11) for i, call in enumerate(bases()))
    assert check(itertools.chain.from_iterable(part)) >= 800


@pytest.mark.skipif(not IS_FULL, reason="minutes: PTERON_OPS=all, or make test-all")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32, torch.bool], ids=str)
def test_all_variants(dtype: torch.dtype) -> None:
    name = f"variants-{str(dtype).removeprefix('torch.')}"
    check(itertools.chain.from_iterable(variants(call) for call in bases(dtype)), name)
