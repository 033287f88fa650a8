"""The loader of the older examples: flat lists of inputs in, flat lists of outputs out.

Programs run in the default runtime. The examples register no backend, so a program that names a demo backend
gets it: those that are not registered yet are registered with the default runtime when it is loaded.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pteron
from pteron.backends.demo.registration import register_missing_demo_backends
from pteron.runtime import MethodMeta

_DEMO_BACKENDS = frozenset({"BackendWithCompilerDemo", "ExecutorBackend"})


class ExecutorchModule:
    """A loaded program. Inputs are flat; torch tensors in, torch tensors out, NumPy arrays in, NumPy arrays
    out.
    """

    def __init__(self, program: Any) -> None:
        self._program = program
        self._methods: dict[str, Any] = {}

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
            inputs: list or tuple of the flattened inputs, or the only input itself.
            clone_outputs: accepted; outputs are always the caller's own.

        Raises:
            MethodNotFoundError: there is no such method.
            InputError: the inputs do not fit.
        """
        method = self._methods.get(method_name)
        if method is None:
            method = self._methods[method_name] = self._program.load_method(method_name)
        flat: Sequence[Any] = inputs if isinstance(inputs, (list, tuple)) else (inputs,)
        return list(method.execute(list(flat)))

    def method_names(self) -> list[str]:
        """Names of the methods."""
        return list(self._program.methods)

    def method_meta(self, method_name: str) -> MethodMeta:
        """What a method takes and gives, without loading it.

        Raises:
            MethodNotFoundError: there is no such method.
        """
        return MethodMeta(self._program, method_name)


class BundledModule:
    """A bundled program: a program and its test cases."""

    def __init__(self, buffer: Any) -> None:
        self._program = pteron.load(buffer)

    def verify_result_with_bundled_expected_output(
        self, method_name: str, testset_idx: int, rtol: float = 1e-5, atol: float = 1e-8
    ) -> list[Any]:
        """Runs a test case and returns the outputs.

        Raises:
            RuntimeError: they are not as the case expects.
            ValueError: there is no such case, or it expects nothing.
        """
        result = self._program.verify(method_name, testset_idx, rtol=rtol, atol=atol)
        if not result:
            raise RuntimeError(str(result))
        return list(result.values)


def _load_for_executorch_from_buffer(
    buffer: Any, data_map_buffer: Any = None, *args: Any, **kwargs: Any
) -> ExecutorchModule:
    """Loads a program from bytes, with the bytes of its data file. Other options of ExecuTorch's own loader
    (tracing, verification) are refused.
    """
    _refuse_options(args, kwargs)
    return _module(buffer, data_map_buffer)


def _load_for_executorch(
    path: str | os.PathLike[str], data_path: str | os.PathLike[str] | None = None, *args: Any, **kwargs: Any
) -> ExecutorchModule:
    """Loads a program from a file, with its data file. Other options of ExecuTorch's own loader (tracing,
    verification) are refused.
    """
    _refuse_options(args, kwargs)
    return _module(path, data_path)


def _load_bundled_program_from_buffer(buffer: Any, *args: Any, **kwargs: Any) -> BundledModule:
    """Loads a bundled program from bytes."""
    _refuse_options(args, kwargs)
    return BundledModule(buffer)


def _load_for_executorch_from_bundled_program(
    module: BundledModule, data_map_buffer: Any = None, *args: Any, **kwargs: Any
) -> ExecutorchModule:
    """The program of a bundled program; one that keeps weights in a data file needs `pteron.load`."""
    _refuse_options(args, kwargs)
    if data_map_buffer is not None:
        raise TypeError("data_map_buffer is not supported here; use pteron.load(bundle, data=...)")
    return ExecutorchModule(module._program)


def _module(source: Any, data: Any = None) -> ExecutorchModule:
    program = pteron.load(source, data=data)
    if any(_DEMO_BACKENDS & set(program.backends(method)) for method in program.methods):
        register_missing_demo_backends()
    return ExecutorchModule(program)


def _refuse_options(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if any(value is not None for value in args) or any(kwargs.values()):
        raise TypeError(
            f"options {list(args) or ''}{sorted(kwargs) or ''} are not supported here; use pteron.load and "
            "load_method"
        )
