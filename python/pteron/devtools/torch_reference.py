"""A program against the model that it was made from, in eager PyTorch: outputs, and values by operator of the
captured model. Needs torch.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from pteron._native import Program, TracedStep
from pteron.devtools.compare import ComparedValue, Comparison, Errors, ValueFiles, errors
from pteron.devtools.description import describe_plan
from pteron.devtools.sources import Source, Sources
from pteron.exir.edge.source_location import root_class, source_location
from pteron.exir.emit.debug_table import source_operator


def compare_with_torch(
    program: Program,
    model: torch.nn.Module | ExportedProgram,
    inputs: Sequence[Any],
    method: str = "forward",
    *,
    num_threads: int | None = None,
) -> Comparison:
    """Runs the program and the model on the same inputs, positional arguments of the model.

    With an `ExportedProgram`, the one that was lowered, each value of the program that is the result of an
    operator of the captured model is compared with that operator's result: an operator is found by name,
    module and source line, of several with the same ones in order. Values of the program are kept in a
    temporary folder, not in memory.

    Raises:
        PteronError: those of loading and calling the method.
        ValueError: outputs of different number or shape.
    """
    arguments = [value.detach() if isinstance(value, torch.Tensor) else value for value in inputs]
    flat = [_numpy(value) for value in pytree.tree_leaves(arguments)]
    with tempfile.TemporaryDirectory(prefix="pteron-compare-") as folder, torch.no_grad():
        watch = _ByHandle(program, method, ValueFiles(Path(folder)))
        session = program.load_method(method, num_threads=num_threads, seed=0)
        is_captured = isinstance(model, ExportedProgram)
        ours = session.execute(flat, tracer=watch if is_captured else None)
        values: tuple[ComparedValue, ...] = ()
        if isinstance(model, ExportedProgram):
            known = _Known(model, watch)
            theirs = known.run(arguments)
            values = tuple(sorted(known.found, key=lambda value: value.step))
        else:
            theirs = model(*arguments)
    expected = [value for value in pytree.tree_leaves(theirs) if value is not None]
    given = [
        (spec, value) for spec, value in zip(program.outputs(method), ours, strict=True) if value is not None
    ]
    if len(expected) != len(given):
        raise ValueError(f"the program has {len(given)} outputs, the model {len(expected)}")
    outputs: dict[str, Errors] = {
        spec.name: errors(np.asarray(value), _numpy(other))
        for (spec, value), other in zip(given, expected, strict=True)
    }
    return Comparison(is_captured, values, outputs)


def _numpy(value: Any) -> Any:
    """A tensor as NumPy has it, 16-bit floats that it has not as float32; anything else as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach()
    if value.dtype == torch.bfloat16:
        import ml_dtypes

        return value.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return value.numpy()


class _ByHandle:
    """A tracer that keeps the last value of each debug handle."""

    def __init__(self, program: Program, method: str, files: ValueFiles) -> None:
        self.steps = describe_plan(program, method).steps
        self.calls = describe_plan(program, method).calls
        self.sources = Sources(program, method)
        self.files = files
        self.step_of: dict[int, int] = {}
        self._written = 0

    def step_begin(self, step: TracedStep) -> None:
        self._written = 0

    def value(self, step: TracedStep, position: int, value: Any) -> None:
        handles = self.steps[step.index].handles
        self._written += 1
        if handles and self._written == 1:
            self.step_of[handles[-1]] = step.index
            self.files.put(f"{handles[-1]}", np.asarray(value))


class _Known(torch.fx.Interpreter):
    """Runs the captured model, and compares results of its operators as they come."""

    def __init__(self, model: ExportedProgram, watch: _ByHandle) -> None:
        self._model = model
        self._watch = watch
        self.found: list[ComparedValue] = []
        self._handles: dict[Source, list[int]] = defaultdict(list)
        for handle in watch.sources.handles():
            self._handles[watch.sources.source(handle)].append(handle)
        self._seen: dict[Source, int] = defaultdict(int)
        super().__init__(model.module(), garbage_collect_values=True)

    def run(self, arguments: Sequence[Any]) -> Any:  # type: ignore[override]
        """The outputs of the model."""
        return super().run(*pytree.tree_leaves(tuple(arguments)), enable_io_processing=False)

    def run_node(self, n: torch.fx.Node) -> Any:
        result = super().run_node(n)
        if n.op == "call_function" and isinstance(result, torch.Tensor):
            self._compare(n, result)
        return result

    def _compare(self, node: torch.fx.Node, result: torch.Tensor) -> None:
        location = source_location(node)
        line = "" if location.file is None else f"{location.file}:{location.line}"
        source = Source(source_operator(node), location.module or root_class(node) or "", line)
        number = self._seen[source]
        self._seen[source] += 1
        handles = self._handles[source]
        handle = handles[number] if number < len(handles) else None
        ours = None if handle is None else self._watch.files.get(str(handle))
        if handle is None or ours is None or ours.shape != tuple(result.shape):
            return
        step = self._watch.steps[self._watch.step_of[handle]]
        other: npt.NDArray[Any] = _numpy(result)
        self.found.append(
            ComparedValue(
                value=step.args[-1] if step.args else -1,
                round=0,
                step=step.index,
                kernel=step.name,
                operator=source.operator,
                source=source,
                dtype=str(ours.dtype),
                shape=ours.shape,
                errors=errors(ours, other),
            )
        )
