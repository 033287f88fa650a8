"""`exir.capture(module, inputs).to_edge().to_executorch()`: the spelling of the first published examples.

One thin layer over `torch.export.export`, `to_edge` and `to_executorch`; new code calls these.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MethodType
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.export.exported_program import ExportedProgram

from pteron.errors import ExportError
from pteron.exir.config.backend_config import ExecutorchBackendConfig
from pteron.exir.config.compile_config import EdgeCompileConfig
from pteron.exir.executorch_program_manager import ExecutorchProgramManager
from pteron.exir.program import EdgeProgramManager, to_edge


@dataclass
class CaptureConfig:
    """Settings of `capture`. Only what `torch.export` does can be asked for.

    Attributes:
        pt2_mode: must be True.
        enable_functionalization: must be True.
        enable_dynamic_shape: make every dimension of every input dynamic where the model allows it, unless
            `dynamic_shapes` says which.
        enable_aot: accepted; parameters and buffers are always lifted to inputs.
    """

    pt2_mode: bool = True
    enable_functionalization: bool = True
    enable_dynamic_shape: bool = False
    enable_aot: bool = False

    def __post_init__(self) -> None:
        for name in ("pt2_mode", "enable_functionalization"):
            if not getattr(self, name):
                raise ExportError(
                    f"CaptureConfig({name}=False) is not supported: torch.export always works this way",
                    argument=name,
                    expected="True",
                    got="False",
                )


class CapturedProgram:
    """A captured program, before or after `to_edge`. Every form of `to_backend` takes it, and returns its
    like.

    Attributes:
        exported_program: the program, in ATen dialect or, if `is_edge`, in edge dialect.
        is_edge: whether `to_edge` has been called.
    """

    def __init__(self, exported_program: ExportedProgram, is_edge: bool) -> None:
        self.exported_program = exported_program
        self.is_edge = is_edge

    @property
    def graph_module(self) -> torch.fx.GraphModule:
        """The program's graph module."""
        module: torch.fx.GraphModule = self.exported_program.graph_module
        return module

    @property
    def graph(self) -> torch.fx.Graph:
        """The program's graph."""
        graph: torch.fx.Graph = self.exported_program.graph
        return graph

    def with_exported_program(self, exported_program: ExportedProgram) -> CapturedProgram:
        """The same stage, with another program in it."""
        return CapturedProgram(exported_program, self.is_edge)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the program in PyTorch."""
        return self.exported_program.module()(*args, **kwargs)

    def to_edge(self, config: EdgeCompileConfig | None = None) -> CapturedProgram:
        """The program in edge dialect."""
        if self.is_edge:
            raise ExportError("the program is in edge dialect already; call to_edge once")
        manager = to_edge(self.exported_program, compile_config=config)
        return CapturedProgram(manager.exported_program(), is_edge=True)

    def transform(self, *passes: Callable[[torch.fx.GraphModule], Any]) -> CapturedProgram:
        """The program after graph passes. Only in edge dialect."""
        self._require_edge("transform")
        manager = EdgeProgramManager(self.exported_program).transform(list(passes))
        return self.with_exported_program(manager.exported_program())

    def to_executorch(self, config: ExecutorchBackendConfig | None = None) -> ExecutorchProgramManager:
        """The finished program. Only in edge dialect."""
        self._require_edge("to_executorch")
        return EdgeProgramManager(self.exported_program).to_executorch(config)

    def dump(self) -> None:
        """Prints the graph."""
        print(self.exported_program.graph)

    def _require_edge(self, name: str) -> None:
        if not self.is_edge:
            raise ExportError(
                f"Must run to_edge before {name}: call .to_edge() on the captured program first"
            )


def capture(
    f: Callable[..., Any],
    args: tuple[Any, ...],
    config: CaptureConfig | None = None,
    dynamic_shapes: dict[str, Any] | tuple[Any, ...] | list[Any] | None = None,
) -> CapturedProgram:
    """Captures a module, or a function or bound method, for example inputs.

    Args:
        f: what to capture.
        args: example inputs, a tuple.
        config: settings, None for the defaults.
        dynamic_shapes: as in `torch.export.export`.

    Raises:
        ExportError: `args` is not a tuple.
    """
    if not isinstance(args, tuple):
        raise ExportError(
            f"capture: Expect `args` to be a tuple, got type: {type(args)}",
            argument="args",
            expected="a tuple of example inputs",
            got=type(args).__name__,
        )
    if config is not None and config.enable_dynamic_shape and dynamic_shapes is None:
        dynamic_shapes = pytree.tree_map(_all_dynamic, args)
    module = f if isinstance(f, torch.nn.Module) else _FunctionModule(f)
    program = torch.export.export(module, args, dynamic_shapes=dynamic_shapes)
    return CapturedProgram(program, is_edge=False)


class _FunctionModule(torch.nn.Module):
    """A function as a module. A bound method brings its module along, so that its parameters are found."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        if isinstance(function, MethodType) and isinstance(function.__self__, torch.nn.Module):
            self.owner = function.__self__
        self._function = function

    def forward(self, *args: Any) -> Any:
        return self._function(*args)


def _all_dynamic(value: Any) -> Any:
    return (
        dict.fromkeys(range(value.ndim), torch.export.Dim.AUTO) if isinstance(value, torch.Tensor) else None
    )
