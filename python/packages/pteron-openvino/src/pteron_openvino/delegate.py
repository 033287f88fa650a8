"""One call site of one session: an infer request, and the buffers that its calls change."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

import pteron
from pteron_openvino.blob import BlobError, Head
from pteron_openvino.memory import TYPES, address, tensor_over
from pteron_openvino.settings import Settings

if TYPE_CHECKING:
    from pteron._native import ExecuteContext
    from pteron_openvino.runtime import Compiled

Array = np.ndarray[Any, Any]
Place = tuple[int, tuple[int, ...]]

#: How often a call is asked whether it was stopped, in milliseconds.
_ASK_EVERY = 5
#: After how many long calls in a row the next one is asked.
_LONG_IN_A_ROW = 3


class OpenvinoDelegate:
    """Runs the model on the caller's memory: inputs and results are bound, not copied.

    What lies where it lay in the call before stays bound. A call of the extents of a short one is not asked
    whether it was stopped, until some in a row were long.
    """

    def __init__(self, compiled: Compiled, head: Head, settings: Settings, first_states: list[Array]) -> None:
        self._compiled, self._head, self._settings = compiled, head, settings
        self._request = compiled.model.create_infer_request()
        self.num_outputs = len(head.outputs)
        for value in (*head.inputs, *head.outputs, *(state.dtype for state in head.states)):
            if value not in TYPES:
                raise BlobError(f"the blob states the element type {value!r}, which OpenVINO does not have")
        self._first = first_states
        for state, first in zip(head.states, first_states, strict=True):
            elements = TYPES[state.dtype].size * int(np.prod(state.shape, dtype=np.int64))
            if first.nbytes != elements:
                raise BlobError(f"buffer {state.name!r} has {first.nbytes} bytes, its shape asks {elements}")
        self._states = [first.copy() for first in first_states]
        self._next = [np.empty_like(first) for first in first_states]
        ports = compiled.model.outputs[len(head.states) :]
        self._varies = [not port.get_partial_shape().is_static for port in ports]
        self._quick_extents: list[tuple[int, ...]] | None = None
        self._long_in_a_row = 0
        # What is bound for each input and each result: the address, and the extents.
        self._bound_inputs: list[Place | None] = [None] * len(head.inputs)
        self._bound_results: list[Place | None] = [None] * len(head.outputs)
        self._covers: dict[str, list[str]] | None = None

    def execute(
        self, ctx: ExecuteContext, inputs: tuple[Any, ...], outputs: tuple[pteron.Tensor, ...]
    ) -> None:
        """Binds, runs, sets the extents of results.

        Raises:
            RuntimeError: OpenVINO's, or that the call was stopped.
        """
        self._bind_states()
        # `held` keeps copies of arguments that are not dense until the call is over.
        held = [_dense(value) for value in inputs]
        first = len(self._head.states)
        for at, (array, dtype) in enumerate(zip(held, self._head.inputs, strict=True)):
            place = (address(array), array.shape)
            if self._bound_inputs[at] != place:
                self._request.set_input_tensor(first + at, tensor_over(array, array.shape, dtype))
                self._bound_inputs[at] = place
        spare = [self._bind_result(at, output) for at, output in enumerate(outputs)]
        extents = [array.shape for array in held]
        begun = time.perf_counter_ns()
        self._infer(ctx, extents)
        self._note_time(extents, time.perf_counter_ns() - begun)
        self._states, self._next = self._next, self._states
        for at, output in enumerate(outputs):
            if spare[at] is not None or self._varies[at]:
                self._finish(first + at, output, spare[at])
        if ctx.is_traced and self._settings.profile:
            self._report(ctx, begun)

    def _bind_states(self) -> None:
        for at, state in enumerate(self._head.states):
            self._request.set_input_tensor(at, tensor_over(self._states[at], state.shape, state.dtype))
            self._request.set_output_tensor(at, tensor_over(self._next[at], state.shape, state.dtype))

    def _infer(self, ctx: ExecuteContext, extents: list[tuple[int, ...]]) -> None:
        if extents == self._quick_extents:
            self._request.infer()
            return
        self._request.start_async()
        while not self._request.wait_for(_ASK_EVERY):
            if ctx.is_cancelled():
                self._request.cancel()
                try:
                    self._request.wait()  # it works on the caller's memory until it is over
                except RuntimeError as error:
                    raise pteron.Cancelled("the call was stopped within OpenVINO") from error

    def _note_time(self, extents: list[tuple[int, ...]], nanoseconds: int) -> None:
        """One long call says little: the machine may have been busy with something else."""
        if nanoseconds < _ASK_EVERY * 1_000_000:
            self._quick_extents, self._long_in_a_row = extents, 0
        elif extents == self._quick_extents:
            self._long_in_a_row += 1
            if self._long_in_a_row == _LONG_IN_A_ROW:
                self._quick_extents = None

    def _bind_result(self, at: int, output: pteron.Tensor) -> Array | None:
        """Binds the memory of a result, or a spare for one that is not dense, and returns the spare."""
        array = np.asarray(output)
        spare = None if array.flags.c_contiguous else np.empty(array.shape, array.dtype)
        to = array if spare is None else spare
        place = None if self._varies[at] else (address(to), array.shape)
        if place is None or self._bound_results[at] != place:
            tensor = tensor_over(to, array.shape, self._head.outputs[at])
            self._request.set_output_tensor(len(self._head.states) + at, tensor)
            self._bound_results[at] = place
        return spare

    def _finish(self, at: int, output: pteron.Tensor, spare: Array | None) -> None:
        """Sets the extents of this call; copies what OpenVINO could not write in place."""
        got = self._request.get_output_tensor(at)
        output.resize(tuple(got.shape))
        array = np.asarray(output)
        values = got.data.view(array.dtype)
        if spare is not None or values.ctypes.data != array.ctypes.data:
            np.copyto(array, values)

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
        return self._states[at].view(_numpy_type(state.dtype)).reshape(state.shape)

    def _report(self, ctx: ExecuteContext, begun: int) -> None:
        """An event for each operator of OpenVINO that ran, in its order; their starts are sums of times."""
        covers = self._covered()
        start = begun
        for timed in self._request.get_profiling_info():
            length = int(timed.real_time.total_seconds() * 1e9)
            if timed.status.name != "EXECUTED":
                continue
            nodes = covers.get(timed.node_name, [])
            detail = {"operator": timed.node_type, "kernel": timed.exec_type, "nodes": nodes}
            identifier = nodes[-1] if nodes else timed.node_name
            ctx.event(identifier, start, start + length, json.dumps(detail).encode())
            start += length

    def _covered(self) -> dict[str, list[str]]:
        """For each operator that OpenVINO runs, the nodes of the program that it computes."""
        if self._covers is None:
            self._covers = {}
            for node in self._compiled.model.get_runtime_model().get_ordered_ops():
                names = str(node.get_rt_info()["originalLayersNames"].astype(str)).split(",")
                found = dict.fromkeys(name.split("/")[0] for name in names if "/" in name)
                self._covers[node.get_friendly_name()] = list(found)
        return self._covers


def _dense(value: Any) -> Array:
    array = np.asarray(value)
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def _numpy_type(name: str) -> np.dtype[Any]:
    if name == "bfloat16":
        import ml_dtypes

        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    return np.dtype(name)
