"""`ExecuTorchProgram` and `ExecuTorchMethod`: methods that are loaded, given inputs and run one by one."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import pteron
from pteron.compat.executorch_module import ModuleWithEtdump, flat_inputs
from pteron.errors import LimitExceeded, MethodNotFoundError, PteronError
from pteron.runtime import MethodMeta, Sessions
from pteron.torch_form import outputs_without_tensor_inputs, torch_where_loaded

if TYPE_CHECKING:
    from pteron.devtools.etdump.recorder import EtdumpRecorder


class ExecuTorchProgram(ModuleWithEtdump):
    """A loaded program. Its methods are loaded once each; those that share mutable buffers have one copy.
    `recorder`: of their calls.
    """

    def __init__(self, program: pteron.Program, recorder: EtdumpRecorder | None = None) -> None:
        self._program = program
        self._sessions = Sessions(program, recorder)

    def num_methods(self) -> int:
        """Number of methods."""
        return len(self._program.methods)

    def get_method_name(self, method_index: int) -> str:
        """Name of a method by its place in the file; MethodNotFoundError beyond."""
        names = self._program.methods
        if not 0 <= method_index < len(names):
            raise MethodNotFoundError(
                "the program has no method at this place",
                expected=f"an index from 0 to {len(names) - 1}",
                got=str(method_index),
            )
        return names[method_index]

    def load_method(self, method_name: str) -> ExecuTorchMethod:
        """A method; MethodNotFoundError where there is none of that name."""
        return ExecuTorchMethod(self._sessions, method_name)

    def method_meta(self, method_name: str) -> MethodMeta:
        """What a method takes and gives, without loading it; MethodNotFoundError where there is none."""
        return MethodMeta(self._program, method_name)


class ExecuTorchMethod:
    """A loaded method that keeps its inputs and outputs between calls. Results have the form that
    `ExecuTorchModule` gives them.
    """

    def __init__(self, sessions: Sessions, name: str) -> None:
        self._program = sessions.program
        self._sessions = sessions
        self._session = sessions.get(name)
        self._takes_tensors = sessions.takes_tensors(name)
        self._inputs: list[Any] | None = None
        self._outputs: list[Any] | None = None

    def set_inputs(self, inputs: Sequence[Any]) -> None:
        """Sets the inputs of the calls of `execute` that follow: copies, so what happens to `inputs` later
        makes no difference.

        Raises:
            InputError: the inputs do not fit. Those that were set before stay.
        """
        flat = flat_inputs(inputs)
        self._check(flat)
        self._inputs = [_copy(value) for value in flat]

    def execute(self) -> None:
        """Runs with the inputs that were set, or those of the last `call` if that came later. The latter are
        read anew, so changes in their memory count.

        Raises:
            InputError: there are none yet.
        """
        self._outputs = self._run(self._inputs or [])

    def get_outputs(self, clone_outputs: bool = True) -> list[Any]:
        """The outputs of the last call; they are the caller's own, whatever `clone_outputs` says.

        Raises:
            PteronError: there was none.
        """
        if self._outputs is None:
            raise PteronError(
                "there are no outputs yet",
                method=self._session.name,
                hint="call execute first",
            )
        return [_copy(value) for value in self._outputs]

    def call(self, inputs: Sequence[Any] = (), clone_outputs: bool = True) -> list[Any]:
        """Runs with a list or tuple of inputs, or with the only input itself; gives the outputs.

        Raises:
            InputError: the inputs do not fit.
        """
        flat = flat_inputs(inputs)
        outputs = self._run(flat)
        self._inputs = flat
        self._outputs = [_copy(value) for value in outputs]
        return outputs

    def __call__(self, inputs: Sequence[Any] = (), clone_outputs: bool = True) -> list[Any]:
        """As `call`."""
        return self.call(inputs, clone_outputs)

    def method_meta(self) -> MethodMeta:
        """What the method takes and gives."""
        return MethodMeta(self._program, self._session.name)

    def get_attribute(self, name: str) -> Any:
        """A copy of the mutable buffer `name`: a torch tensor where torch is loaded, else a read-only array.

        Raises:
            PteronError: the method keeps no buffer of that name.
        """
        state = self._session.get_state()
        if name not in state:
            raise PteronError(
                "the method keeps no buffer of this name",
                method=self._session.name,
                expected=f"one of {', '.join(sorted(state)) or 'none'}",
                got=name,
            )
        array = state[name]
        tensor = torch_where_loaded(array)
        if tensor is array and isinstance(array, np.ndarray):
            array.flags.writeable = False
        return tensor

    def _run(self, flat: list[Any]) -> list[Any]:
        outputs = self._sessions.execute(self._session.name, flat)
        return outputs if self._takes_tensors else outputs_without_tensor_inputs(outputs, flat)

    def _check(self, flat: list[Any]) -> None:
        """Let the runtime read the inputs as a call does, which raises where they do not fit."""
        with contextlib.suppress(LimitExceeded):  # of the steps: the call may take none
            self._session.execute(flat, budget=0)


def _copy(value: Any) -> Any:
    """A tensor of its own with the same contents; other values as they are."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if hasattr(value, "detach") and hasattr(value, "clone"):
        return value.detach().clone()
    if hasattr(value, "__array__"):
        return np.array(value, copy=True)
    return value
