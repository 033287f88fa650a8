"""`ExecuTorchModule` and `BundledModule`: flat lists of inputs in, flat lists of outputs out.

torch tensors in, torch tensors out, NumPy arrays in, NumPy arrays out. Where none are passed (to methods
that take none, or with the inputs of test cases), results are torch tensors if torch is loaded, else NumPy
arrays. Outputs are always the caller's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pteron
from pteron import bundled
from pteron.errors import InputError
from pteron.runtime import MethodMeta, Sessions, WithEtdump
from pteron.torch_form import outputs_without_tensor_inputs, torch_where_loaded

if TYPE_CHECKING:
    from pteron.devtools.etdump.recorder import EtdumpRecorder


class ModuleWithEtdump(WithEtdump):
    """The same for modules, which can also be asked whether there is one."""

    def has_etdump(self) -> bool:
        """Whether calls are recorded."""
        return self._sessions.recorder is not None


class ExecuTorchModule(ModuleWithEtdump):
    """A loaded program. `recorder`: of its calls."""

    def __init__(self, program: pteron.Program, recorder: EtdumpRecorder | None = None) -> None:
        self._program = program
        self._sessions = Sessions(program, recorder)
        self._inputs: dict[str, list[Any]] = {}
        self._without_tensors = {m for m in program.methods if not self._sessions.takes_tensors(m)}

    def forward(self, inputs: Any = (), clone_outputs: bool = True) -> list[Any]:
        """Runs the method `forward`; see `run_method`."""
        return self.run_method("forward", inputs, clone_outputs)

    def __call__(self, inputs: Any = (), clone_outputs: bool = True) -> list[Any]:
        """Runs the method `forward` with one input, or with a list or tuple of inputs."""
        return self.run_method("forward", inputs, clone_outputs)

    def run_method(
        self, method_name: str = "forward", inputs: Any = (), clone_outputs: bool = True
    ) -> list[Any]:
        """Runs a method.

        Args:
            method_name: which.
            inputs: list or tuple of the flattened inputs, or the only input itself. All of them: those of an
                earlier call are not used again.
            clone_outputs: accepted; outputs are always the caller's own.

        Raises:
            MethodNotFoundError: there is no such method.
            InputError: the inputs do not fit.
        """
        flat = flat_inputs(inputs)
        outputs = self._execute(method_name, flat)
        self._inputs[method_name] = flat
        return outputs

    def plan_execute(self, method_name: str, clone_outputs: bool = True) -> list[Any]:
        """Runs a method again with the inputs of its last call, or of `load_bundled_input`. They are read
        anew, so changes in their memory count.

        Raises:
            MethodNotFoundError: there is no such method.
            InputError: it takes inputs, and has had none.
        """
        flat = self._inputs.get(method_name)
        if flat is None:
            count = len(self._program.inputs(method_name))
            if count > 0:
                raise InputError(
                    "the inputs of the method have not been set",
                    method=method_name,
                    expected=f"{count} inputs of an earlier call",
                    got="no call so far",
                    hint="call run_method first",
                )
            flat = []
        return self._execute(method_name, flat)

    def load_bundled_input(self, bundle: BundledModule, method_name: str, testset_idx: int) -> None:
        """Makes the inputs of a test case those of the next `plan_execute`.

        Raises:
            MethodNotFoundError: there is no such method.
            InputError: there is no such case.
        """
        case = bundle.test_case(method_name, testset_idx)
        self._inputs[method_name] = [torch_where_loaded(value) for value in case.inputs]

    def verify_result_with_bundled_expected_output(
        self,
        bundle: BundledModule,
        method_name: str,
        testset_idx: int,
        rtol: float = 1e-5,
        atol: float = 1e-8,
    ) -> list[Any]:
        """Runs a test case in this module and returns the outputs.

        Raises:
            PteronError: they are not as the case expects.
            InputError: there is no such case, or it expects nothing.
        """
        case = bundle.comparable_case(method_name, testset_idx)
        outputs = self._sessions.execute(method_name, case.inputs)
        return _verified(bundled.compare(method_name, testset_idx, case, outputs, rtol, atol))

    def method_names(self) -> list[str]:
        """Names of the methods."""
        return list(self._program.methods)

    def method_meta(self, method_name: str) -> MethodMeta:
        """What a method takes and gives, without loading it.

        Raises:
            MethodNotFoundError: there is no such method.
        """
        return MethodMeta(self._program, method_name)

    def _execute(self, method_name: str, flat: list[Any]) -> list[Any]:
        outputs = self._sessions.execute(method_name, flat)
        if method_name in self._without_tensors:
            return outputs_without_tensor_inputs(outputs, flat)
        return outputs


class BundledModule:
    """A bundled program: a program and its test cases."""

    def __init__(self, buffer: Any) -> None:
        self.buffer = buffer
        self._program = pteron.load(buffer)

    def test_case(self, method_name: str, testset_idx: int) -> bundled.TestCase:
        """A test case; InputError where there is none."""
        return bundled.test_case(self._program, method_name, testset_idx)

    def comparable_case(self, method_name: str, testset_idx: int) -> bundled.TestCase:
        """A test case with expected outputs; InputError where there is none."""
        return bundled.comparable_case(self._program, method_name, testset_idx)

    def verify_result_with_bundled_expected_output(
        self, method_name: str, testset_idx: int, rtol: float = 1e-5, atol: float = 1e-8
    ) -> list[Any]:
        """Runs a test case in a new session and returns the outputs.

        Raises:
            PteronError: they are not as the case expects.
            InputError: there is no such case, or it expects nothing.
        """
        return _verified(bundled.verify(self._program, method_name, testset_idx, rtol, atol))


def _verified(result: bundled.CaseResult) -> list[Any]:
    """The outputs of a case that passed; PteronError where it did not."""
    if not result:
        raise bundled.verification_failure(result)
    return [torch_where_loaded(value) for value in result.values]


def flat_inputs(inputs: Any) -> list[Any]:
    """A list or tuple of inputs, or the only input, as a list."""
    given: Sequence[Any] = inputs if isinstance(inputs, (list, tuple)) else (inputs,)
    return list(given)
