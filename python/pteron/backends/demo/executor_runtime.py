"""`ExecutorBackend`, run half in Python: loads the nested program and runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pteron.backends.demo.compiler_demo_runtime import store_output


class ExecutorRuntime:
    """The backend object: register it under the name `ExecutorBackend`.

    Args:
        runtime: where the nested program's kernels and backends come from, None for the default runtime.
    """

    def __init__(self, runtime: Any = None) -> None:
        self._runtime = runtime

    def is_available(self) -> bool:
        """Always."""
        return True

    def init(self, ctx: Any, processed: Any, compile_specs: Mapping[str, bytes]) -> ExecutorDelegate:
        """Loads the nested program; its errors are raised as they are."""
        import pteron

        program = pteron.load(bytes(processed), runtime=self._runtime)
        return ExecutorDelegate(program.load_method("forward"), len(program.outputs("forward")))


class ExecutorDelegate:
    """A session of the nested program."""

    def __init__(self, method: Any, num_outputs: int) -> None:
        self.num_outputs = num_outputs
        self._method = method

    def execute(self, ctx: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Runs the nested program and copies its outputs."""
        arguments = [
            value if isinstance(value, (int, float, bool)) else np.asarray(value) for value in inputs
        ]
        results = self._method.execute(arguments)
        for output, result in zip(outputs, results, strict=True):
            store_output(output, np.asarray(result))

    def get_state(self) -> dict[str, Any]:
        """The mutable buffers of the nested program, by name."""
        state: dict[str, Any] = self._method.get_state()
        return state

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Sets some of them."""
        self._method.set_state(state)

    def reset_state(self) -> None:
        """Puts all of them back to their initial contents."""
        self._method.reset_state()
