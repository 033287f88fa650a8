"""The first value of a call that is not finite: the step that wrote it, with operator, module and line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pteron._native import Program, TracedStep
from pteron.devtools.description import describe_plan
from pteron.devtools.sources import Source, Sources


@dataclass(frozen=True)
class NonFinite:
    """A value with elements that are not finite.

    `step`: index in the plan, -1 for an input of the call, whose name is then `operator`. `kernel`: what ran.
    `sources`: the places of the model behind the step. `index`: where the first such element is. `nans`,
    `infinities`: how many there are.
    """

    step: int
    kernel: str
    operator: str
    sources: tuple[Source, ...]
    dtype: str
    shape: tuple[int, ...]
    index: tuple[int, ...]
    nans: int
    infinities: int

    def __str__(self) -> str:
        who = (
            f"step {self.step}, {self.operator} ({self.kernel}),"
            if self.step >= 0
            else f"input {self.operator}"
        )
        what = f"{self.dtype}{list(self.shape)}: {self.nans} NaN, {self.infinities} infinite"
        line = f"{who} has {what}, the first at {list(self.index)}"
        places = [" ".join(filter(None, (each.module, each.line))) for each in self.sources]
        return "\n  in ".join([line, *filter(None, places)])


def first_non_finite(
    program: Program,
    inputs: Iterable[Any],
    method: str = "forward",
    *,
    nan_only: bool = False,
    num_threads: int | None = None,
    backend_options: Mapping[str, Mapping[str, bool | int | str]] | None = None,
) -> NonFinite | None:
    """Calls a method and stops at the first value with a NaN or an infinity; None where all are finite.

    Values are those that steps of the plan write: with `Runtime(disabled_rules=["all"])` those of every
    instruction. `nan_only`: infinities are left alone, as models have them in masks. `inputs` are those of
    `Method.execute`.

    Raises:
        PteronError: those of loading and calling the method.
    """
    session = program.load_method(method, num_threads=num_threads, backend_options=backend_options)
    arguments = list(inputs)
    for spec, value in zip(session.inputs, arguments, strict=False):
        found = _bad(value, nan_only)
        if found is not None:
            return NonFinite(-1, "", spec.name, (), *found)
    watch = _Watch(nan_only)
    try:
        session.execute(arguments, tracer=watch)
    except _StopError as stop:
        plan = describe_plan(program, method)
        step = plan.steps[stop.step.index]
        return NonFinite(
            step.index,
            step.name,
            step.operator or step.name,
            tuple(Sources(program, method).of(step)),
            *stop.found,
        )
    return None


_Found = tuple[str, tuple[int, ...], tuple[int, ...], int, int]


class _StopError(Exception):
    def __init__(self, step: TracedStep, found: _Found) -> None:
        super().__init__(step.index)
        self.step = step
        self.found = found


class _Watch:
    """The tracer: ends the call at the first such value."""

    def __init__(self, nan_only: bool) -> None:
        self._nan_only = nan_only

    def value(self, step: TracedStep, position: int, value: Any) -> None:
        found = _bad(value, self._nan_only)
        if found is not None:
            raise _StopError(step, found)


def _bad(value: Any, nan_only: bool) -> _Found | None:
    if isinstance(value, (bool, int, str)) or value is None:
        return None
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        dtype = str(value.dtype).removeprefix("torch.")
        array: npt.NDArray[Any] = value.float().numpy() if dtype == "bfloat16" else value.numpy()
    else:
        array = np.asarray(value)
        dtype = str(array.dtype)
    if array.dtype.kind not in "fcV":
        return None
    if array.dtype.kind == "V":  # of ml_dtypes, whose numbers float32 has all
        array = array.astype(np.float32)
    nans = np.isnan(array)
    bad = nans if nan_only else ~np.isfinite(array)
    if not bad.any():
        return None
    index = tuple(int(each) for each in np.unravel_index(int(bad.argmax()), array.shape))
    return dtype, array.shape, index, int(nans.sum()), int(np.isinf(array).sum())
