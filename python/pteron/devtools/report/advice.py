"""What a reader of a report should look at first: sentences that follow from its figures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from pteron.devtools.ceiling import Ceiling
from pteron.devtools.flops import MOVES
from pteron.devtools.report.layers import Layer
from pteron.devtools.report.weights import Weight
from pteron.devtools.text_table import size_text


def of_program(file: Layer, plan: Layer, weights: Sequence[Weight], live: Sequence[int]) -> Iterator[str]:
    """What is true of a program without running it."""
    fused = [node for node in plan.nodes if len(node.instructions) > 1]
    if fused:
        covered = sum(len(node.instructions) for node in fused)
        yield (
            f"Load makes {_count(plan.nodes, 'step')} of {_count(file.nodes, 'instruction')};"
            f" {len(fused)} of them stand for {covered}."
        )
    delegated = [node for node in file.nodes if node.backend]
    for backend in sorted({node.backend for node in delegated}):
        count = sum(node.backend == backend for node in delegated)
        yield f"Delegates of {backend}: {count} of {_count(file.nodes, 'instruction')}."
    moved = [node for node in plan.nodes if is_move(node.operator)]
    if moved:
        nbytes = sum(node.nbytes for node in moved)
        whole = sum(node.nbytes for node in plan.nodes) or 1
        yield (
            f"Moving bytes alone takes {_count(moved, 'step')}: {size_text(nbytes)} in a call,"
            f" {nbytes / whole:.0%} of all that steps read and write."
        )
    if live and max(live):
        peak = max(range(len(live)), key=live.__getitem__)
        planned = sum(plan.method.arenas)
        yield (
            f"Memory is fullest at step {peak}: {size_text(live[peak])} of {size_text(planned)} planned bytes"
            " are in use."
        )
    again: dict[tuple[int, int], list[Weight]] = defaultdict(list)
    for weight in weights:
        if weight.copies > 1:
            again[weight.nbytes, weight.copies].append(weight)
    wasted = sum(nbytes * len(same) * (copies - 1) // copies for (nbytes, copies), same in again.items())
    if wasted:
        yield f"{size_text(wasted)} of the weights are copies of bytes that the file has already."


def of_run(plan: Layer, run: dict[str, Any], ceiling: Ceiling | None) -> Iterator[str]:
    """What the times of a run say."""
    spent: list[float] = run["ns"]
    total = sum(spent)
    if not total:
        return
    by_operator: dict[str, list[int]] = defaultdict(list)
    for at, node in enumerate(plan.nodes):
        by_operator[node.operator].append(at)
    operator, members = max(by_operator.items(), key=lambda item: sum(spent[at] for at in item[1]))
    time = sum(spent[at] for at in members)
    text = f"{time / total:.0%} of the time is in {_count(members, 'step')} of {operator}"
    if ceiling is not None:
        flops = sum(plan.nodes[at].flops for at in members)
        nbytes = sum(plan.nodes[at].nbytes for at in members)
        text += f", at {ceiling.share(flops, nbytes, time):.0%} of this machine's ceiling"
    yield text + "."
    heaviest = sorted(range(len(spent)), key=lambda at: -spent[at])
    count, sum_so_far = 0, 0.0
    while sum_so_far < 0.8 * total:
        sum_so_far += spent[heaviest[count]]
        count += 1
    if count < len(spent):
        yield f"{count} of {len(spent)} steps take {sum_so_far / total:.0%} of the time."
    moved = sum(spent[at] for at, node in enumerate(plan.nodes) if is_move(node.operator))
    if moved > 0.02 * total:
        yield f"{moved / total:.0%} of the time goes into steps that only move bytes."
    if run["overhead"] > 0.05:
        yield (
            f"Measuring adds {run['overhead']:.0%} to a call: the times of short steps are too long by"
            " about as much."
        )


def of_errors(plan: Layer, errors: Sequence[float | None], rtol: float) -> Iterator[str]:
    """Where a comparison finds the first difference."""
    first = next((at for at, error in enumerate(errors) if error is not None and error > rtol), None)
    if first is None:
        yield f"No compared value differs by more than {rtol:g} of the largest element."
        return
    node = plan.nodes[first]
    where = node.source.module or node.source.line or "a place that the file does not name"
    yield (
        f"The first value that differs by more than {rtol:g} is of step {first}, {node.operator}, in {where}."
    )


def _count(members: Sequence[object], noun: str) -> str:
    return f"{len(members)} {noun}{'' if len(members) == 1 else 's'}"


def is_move(operator: str) -> bool:
    """Whether an operator computes nothing."""
    return operator.split(".")[0].removeprefix("aten::") in MOVES
