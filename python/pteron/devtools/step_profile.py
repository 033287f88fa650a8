"""What is known of a step of a plan: its operator, place in the source, work and times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pteron.devtools.description import MethodDescription, Step
from pteron.devtools.flops import flops, with_tensors_of
from pteron.devtools.live_memory import live_bytes
from pteron.devtools.sources import Source, Sources


@dataclass(frozen=True)
class StepProfile:
    """One step over all measured calls.

    `live_bytes` is the planned memory that holds values which this or a later step uses.
    `nanoseconds` has an entry for each time that the step ran. `source` is the place of the part with most
    arithmetic, `sources` are those of all. `flops` and `nbytes` are for one run at the largest shapes.
    """

    step: Step
    operator: str
    backend: str
    source: Source
    sources: tuple[Source, ...]
    nanoseconds: tuple[int, ...]
    flops: int
    nbytes: int
    live_bytes: int = 0


def step_profiles(
    plan: MethodDescription,
    file: MethodDescription,
    sources: Sources,
    times: Mapping[int, Sequence[int]] | None = None,
) -> tuple[StepProfile, ...]:
    """What is known of each step of a plan, with its times where there are any; `file` is the same method as
    the file has it.
    """
    whole = with_tensors_of(plan, file)
    backends = [delegate["backend"] for delegate in plan.delegates]
    live = live_bytes(plan)
    # A copy before a call, and the parts that a call was taken apart into, stand for the same call, which
    # counts once.
    counted_in = {call: step.index for step in plan.steps for call in step.calls}
    return tuple(
        _step_profile(
            whole,
            step,
            sources,
            backends,
            tuple((times or {}).get(step.index, ())),
            live[step.index],
            counted_in,
        )
        for step in plan.steps
    )


def _step_profile(
    plan: MethodDescription,
    step: Step,
    sources: Sources,
    backends: Sequence[str],
    times: tuple[int, ...],
    live: int,
    counted_in: Mapping[int, int],
) -> StepProfile:
    calls = [plan.calls[index] for index in step.calls]
    tensors = [tensor for arg in step.args for tensor in plan.leaves(arg)]
    result = tensors[-1] if tensors else None
    counts = [
        flops(plan, call, result) if counted_in[index] == step.index else 0
        for index, call in zip(step.calls, calls, strict=True)
    ]
    places = sources.of(step)
    heaviest = counts.index(max(counts)) if counts else 0
    delegate = next((call.delegate for call in calls if call.delegate is not None), None)
    if delegate is None and step.parts:
        delegate = step.parts[0][0]
    backend = backends[delegate] if delegate is not None and delegate < len(backends) else ""
    names = [call.operator for call in calls if call.operator is not None]
    return StepProfile(
        step=step,
        operator=names[heaviest] if heaviest < len(names) else (backend or step.name),
        backend=backend,
        source=places[min(heaviest, len(places) - 1)] if places else Source(),
        sources=tuple(places),
        nanoseconds=times,
        flops=sum(counts),
        nbytes=step.reads + step.writes,
        live_bytes=live,
    )
