"""One call site of one session: memory bound to ONNX Runtime, and the buffers that calls change."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import pteron
from pteron_onnxruntime.blob import BlobError, Head
from pteron_onnxruntime.memory import TYPES, Array, address, numpy_type
from pteron_onnxruntime.settings import Settings
from pteron_onnxruntime.watch import WATCH

if TYPE_CHECKING:
    from pteron._native import ExecuteContext
    from pteron_onnxruntime.compiled import Compiled

Place = tuple[int, tuple[int, ...]]


class OnnxRuntimeDelegate:
    """Runs the model on the caller's memory: inputs and results are bound, not copied.

    A result whose extents are known only after the call is copied. What lies where it lay in the call before
    stays bound.
    """

    def __init__(self, compiled: Compiled, head: Head, settings: Settings, first_states: list[Array]) -> None:
        self._compiled, self._head, self._settings = compiled, head, settings
        self._binding = compiled.session.io_binding()
        self._input_names = [port.name for port in compiled.session.get_inputs()]
        self._output_names = [port.name for port in compiled.session.get_outputs()]
        self.num_outputs = len(head.outputs)
        self._first = first_states
        self._states = [first.copy() for first in first_states]
        self._next = [np.empty_like(first) for first in first_states]
        # By name, what is bound: the address, and the extents.
        self._bound: dict[str, Place] = {}

    def execute(
        self, ctx: ExecuteContext, inputs: tuple[Any, ...], outputs: tuple[pteron.Tensor, ...]
    ) -> None:
        """Binds, runs, sets the extents of results.

        Raises:
            RuntimeError: ONNX Runtime's. Cancelled: the call was stopped.
        """
        # `held` keeps copies of arguments that are not dense until the call is over.
        held = [_dense(value) for value in inputs]
        extents = [array.shape for array in held]
        self._bind_states(self._binding)
        self._bind_inputs(self._binding, held, self._bound)
        spare = [self._bind_result(at, output, extents) for at, output in enumerate(outputs)]
        self._run(ctx)
        if ctx.is_traced and self._settings.profile:
            self._report(ctx, held)
        self._states, self._next = self._next, self._states
        for at, output in enumerate(outputs):
            if spare[at] is not _IN_PLACE:
                self._copy_result(at, output, spare[at])

    def _bind_states(self, binding: Any) -> None:
        for at, state in enumerate(self._head.states):
            kind = TYPES[state.dtype][0]
            binding.bind_input(self._input_names[at], "cpu", 0, kind, state.shape, address(self._states[at]))
            new = address(self._next[at])
            binding.bind_output(self._output_names[at], "cpu", 0, kind, state.shape, new)

    def _bind_inputs(self, binding: Any, held: list[Array], bound: dict[str, Place]) -> None:
        names = self._input_names[len(self._head.states) :]
        for name, array, dtype in zip(names, held, self._head.inputs, strict=True):
            place = (address(array), array.shape)
            if bound.get(name) != place:
                binding.bind_input(name, "cpu", 0, TYPES[dtype][0], place[1], place[0])
                bound[name] = place

    def _bind_result(self, at: int, output: pteron.Tensor, extents: list[tuple[int, ...]]) -> Array | None:
        """Binds the memory of a result, or a spare where it is not dense; None: ONNX Runtime allocates it."""
        name = self._output_names[len(self._head.states) + at]
        shape = self._shape(at, extents)
        if shape is None:
            self._binding.bind_output(name, "cpu")
            self._bound.pop(name, None)
            return None
        if shape != output.shape:
            output.resize(shape)
        array = np.asarray(output)
        spare = _IN_PLACE if array.flags.c_contiguous else np.empty(array.shape, array.dtype)
        place = (address(array if spare is _IN_PLACE else spare), shape)
        if self._bound.get(name) != place:
            self._binding.bind_output(name, "cpu", 0, TYPES[self._head.outputs[at]][0], shape, place[0])
            self._bound[name] = place
        return spare

    def _shape(self, at: int, extents: list[tuple[int, ...]]) -> tuple[int, ...] | None:
        shape = []
        for extent in self._head.extents[at]:
            if extent is None:
                return None
            try:
                shape.append(extent if isinstance(extent, int) else extents[extent[0]][extent[1]])
            except IndexError as error:
                raise BlobError(
                    f"the blob takes an extent from input {extent}, which is not there"
                ) from error
        return tuple(shape)

    def _copy_result(self, at: int, output: pteron.Tensor, spare: Array | None) -> None:
        if spare is None:
            value = self._binding.get_outputs()[len(self._head.states) + at]
            output.resize(tuple(value.shape()))
            array = np.asarray(output)
            spare = _over(value, array.dtype)
        else:
            array = np.asarray(output)
        np.copyto(array, spare)

    def _run(self, ctx: ExecuteContext) -> None:
        options = WATCH.begin(ctx)
        try:
            self._compiled.session.run_with_iobinding(self._binding, options)
        except Exception as error:  # ONNX Runtime's have no base of their own
            if options.terminate:
                raise pteron.Cancelled("the call was stopped within ONNX Runtime") from error
            raise
        finally:
            WATCH.end(options)

    def get_state(self) -> dict[str, Array]:
        """Buffers by name, copied."""
        return {state.name: self._view(at).copy() for at, state in enumerate(self._head.states)}

    def set_state(self, state: Mapping[str, Array]) -> None:
        """Takes over buffers by name."""
        for at, known in enumerate(self._head.states):
            np.copyto(self._view(at), np.asarray(state[known.name]))

    def reset_state(self) -> None:
        """Sets all buffers to their first values."""
        for held, first in zip(self._states, self._first, strict=True):
            np.copyto(held, first)

    def _view(self, at: int) -> Array:
        state = self._head.states[at]
        return self._states[at].view(numpy_type(state.dtype)).reshape(state.shape)

    def _report(self, ctx: ExecuteContext, held: list[Array]) -> None:
        """Events of a second session, which runs the call twice: ONNX Runtime writes times when one ends."""
        with tempfile.TemporaryDirectory() as folder:
            session = self._compiled.profiled(folder)
            binding = session.io_binding()
            self._bind_states(binding)
            self._bind_inputs(binding, held, {})
            for name in self._output_names:
                binding.bind_output(name, "cpu")
            for _ in range(2):
                session.run_with_iobinding(binding)
            timed = json.loads(Path(session.end_profiling()).read_text())
        last: dict[str, dict[str, Any]] = {}
        for event in timed:
            if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
                last[event["name"]] = event
        now = time.perf_counter_ns()
        begun = min((event["ts"] for event in last.values()), default=0)
        for name, event in last.items():
            node = name.removesuffix("_kernel_time")
            # ONNX Runtime puts a word before the name of an operator that it fused with the one behind it.
            program_node = node.split("/")[0].split(" ")[-1] if "/" in node else node
            detail = {key: event["args"].get(key) for key in ("op_name", "provider")}
            start = now + (event["ts"] - begun) * 1000
            content = json.dumps({**detail, "node": node}).encode()
            ctx.event(program_node, start, start + event["dur"] * 1000, content)


#: Stands for "ONNX Runtime writes to the memory of the result".
_IN_PLACE: Array = np.empty(0, np.uint8)


def _dense(value: Any) -> Array:
    array = np.asarray(value)
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def _over(value: Any, dtype: np.dtype[Any]) -> Array:
    """The memory of an OrtValue: its `numpy()` copies, and knows no bfloat16."""
    import ctypes

    size = int(np.prod(value.shape(), dtype=np.int64)) * dtype.itemsize
    content = memoryview((ctypes.c_uint8 * size).from_address(value.data_ptr()) if size else b"")
    return np.frombuffer(content, dtype).reshape(value.shape())
