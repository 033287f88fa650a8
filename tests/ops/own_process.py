"""Variants judged in a process of their own: some calls end eager PyTorch's.

The process is a fork, one for each operator. When it ends before its work, the variant it was at is known,
and the next process goes on behind it.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, NoReturn

import pteron
from tests.ops.edge_variants import Variant
from tests.ops.op_db.judging import Outcome, case_of, is_storable, judge, some_outputs
from tests.ops.op_db.recording import RecordedCall
from tests.ops.op_db.samples import first_dtype
from tests.ops.runtime_call import run_in_runtime

# Seconds after which one variant counts as one that ends its process.
_PATIENCE = 120


@dataclass
class Judged:
    """What became of a variant."""

    operator: str
    dtype: str
    note: str
    case: str
    is_refused: bool
    outcome: Outcome
    detail: str


def judge_variant(variant: Variant, say: Callable[[str], None] = lambda who: None) -> Judged | None:
    """Calls eager PyTorch and the runtime, and says before each who comes now; None where no program can
    hold the call.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        say("eager")
        call = variant.recorded()
        if not is_storable(call):
            return None
        say("runtime")
        verdict = judge(call, run_in_runtime)
    return _judged(variant, verdict.outcome, verdict.detail or call.error, call.expected is None)


def judge_apart(found: list[Variant]) -> Iterator[Judged]:
    """The same of many variants, whatever becomes of the process."""
    first = 0
    while first < len(found):
        messages, status = _child(lambda target, start=first: _work(found, start, target))
        yield from (message for _, message in messages if isinstance(message, Judged))
        if not status:
            return
        at, who = messages[-1]
        # An exception is the harness's own, and a finding too.
        is_eager = who == "eager" and os.WIFSIGNALED(status)
        lives = is_eager and not _child(lambda _, variant=found[at]: _run(variant))[1]
        detail = f"by {signal.Signals(os.WTERMSIG(status)).name}" if os.WIFSIGNALED(status) else str(who)
        yield _judged(found[at], Outcome.EAGER_ENDS if lives else Outcome.ENDS, detail, False)
        first = at + 1


def _work(found: list[Variant], first: int, target: BinaryIO) -> None:
    for index in range(first, len(found)):
        signal.alarm(_PATIENCE)
        judged = judge_variant(found[index], lambda who, i=index: _say(target, (i, who)))
        _say(target, (index, judged))


def _run(variant: Variant) -> None:
    """The runtime alone, on what ended eager PyTorch: it may refuse the call and must live."""
    signal.alarm(_PATIENCE)
    case = case_of(RecordedCall(variant.base.op, variant.args, variant.kwargs, None))
    try:
        run_in_runtime(case, some_outputs(case))
    except pteron.PteronError:
        return


def _child(work: Callable[[BinaryIO], None]) -> tuple[list[tuple[int, Any]], int]:
    """What work says in a process of its own, and that process's status."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        _end_after(work, writer)
    os.close(writer)
    messages = []
    with os.fdopen(reader, "rb") as source:
        while True:
            try:
                messages.append(pickle.load(source))
            except (EOFError, pickle.UnpicklingError):
                break
    return messages, os.waitpid(child, 0)[1]


def _end_after(work: Callable[[BinaryIO], None], writer: int) -> NoReturn:
    status = 1
    faulthandler.disable()
    try:
        with os.fdopen(writer, "wb", buffering=0) as target:
            work(target)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _say(target: BinaryIO, message: object) -> None:
    target.write(pickle.dumps(message))


def _judged(variant: Variant, outcome: Outcome, detail: str, is_refused: bool) -> Judged:
    call = RecordedCall(variant.base.op, variant.args, variant.kwargs, None)
    dtype = first_dtype(call.args)
    return Judged(str(call.op), dtype, variant.note, str(case_of(call)), is_refused, outcome, detail)
