"""Variants at the edges of one call of every operator: results and refusals of eager PyTorch.

`make test` takes a fixed part, `make test-all` (`PTERON_OPS=all`) all of them in four element types.
"""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch

from tests.ops import own_process
from tests.ops.edge_differences import reason_for
from tests.ops.edge_variants import Variant, bases, variants
from tests.ops.op_db.judging import Outcome
from tests.ops.own_process import Judged, judge_apart, judge_variant
from tests.support.extent import only_in

TARGET = Path(__file__).resolve().parents[2] / "target" / "op_db"


def check(found: Iterable[Judged | None], name: str = "") -> int:
    """Fails with the differences that have no reason, and answers how many variants there were."""
    count, refused, known, unexplained = 0, 0, [], []
    for judged in found:
        if judged is None:
            continue
        count += 1
        refused += judged.is_refused
        if judged.outcome is Outcome.AGREES:
            continue
        line = f"{judged.note}: {judged.case}: {judged.outcome.value}: {judged.detail}"
        reason = reason_for(judged.operator, judged.dtype, judged.outcome, judged.note, judged.detail)
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
    assert check(map(judge_variant, itertools.chain.from_iterable(part))) >= 800


def test_what_ends_the_process_is_told_apart() -> None:
    """The harness itself: a call that ends eager PyTorch, the runtime, or raises what nobody expects."""
    variant = next(variants(next(bases())))

    def ended_in(method: str) -> list[Outcome]:
        with pytest.MonkeyPatch.context() as patch:
            place = Variant if method == "recorded" else own_process
            patch.setattr(place, method, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
            return [judged.outcome for judged in own_process.judge_apart([variant, variant])]

    assert ended_in("recorded") == [Outcome.EAGER_ENDS] * 2
    assert ended_in("judge") == [Outcome.ENDS] * 2
    assert [judged.outcome for judged in own_process.judge_apart([variant])] == [Outcome.AGREES]


@only_in("OPS")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32, torch.bool], ids=str)
def test_all_variants(dtype: torch.dtype) -> None:
    name = f"variants-{str(dtype).removeprefix('torch.')}"
    apart = (judge_apart(list(variants(call))) for call in bases(dtype))
    check(itertools.chain.from_iterable(apart), name)
