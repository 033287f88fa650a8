"""How much of planned memory holds values that are still read, step by step."""

from __future__ import annotations

from collections import defaultdict

from pteron.devtools.description import MethodDescription


def live_bytes(plan: MethodDescription) -> list[int]:
    """For each step of a plan, the bytes of planned memory with values that this or a later step uses, at the
    largest shapes. Bytes that several values share, views for example, count once.

    Inputs live from the start, outputs to the end, state always. Rounds of a loop look like one.
    """
    last = len(plan.steps) - 1
    born: dict[int, int] = dict.fromkeys(plan.inputs, 0)
    dies: dict[int, int] = dict.fromkeys(plan.outputs, last)
    for step in plan.steps:
        for arg in step.args:
            for tensor in plan.leaves(arg) if arg < len(plan.values) else ():
                born.setdefault(tensor.index, step.index)
                dies[tensor.index] = max(dies.get(tensor.index, 0), step.index)
    places: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for at, tensor in plan.tensors.items():
        if tensor.arena is None or tensor.offset is None or (at not in born and not tensor.is_state):
            continue
        start, end = (0, last) if tensor.is_state else (born[at], dies.get(at, born[at]))
        for step_at in range(start, end + 1):
            places[step_at].append((tensor.arena, tensor.offset, tensor.offset + tensor.nbytes))
    return [_union(places[at]) for at in range(len(plan.steps))]


def _union(spans: list[tuple[int, int, int]]) -> int:
    """Bytes that any of the spans (arena, start, end) covers."""
    total, reached = 0, (-1, 0)
    for arena, start, end in sorted(spans):
        start = max(start, reached[1]) if arena == reached[0] else start
        if end > start:
            total += end - start
            reached = arena, end
        elif arena != reached[0]:
            reached = arena, end
    return total
