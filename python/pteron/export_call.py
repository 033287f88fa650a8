"""`pteron.export`: a model to a checked program in one call. torch is imported when it is called."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from pteron.exir import EdgeCompileConfig, ExecutorchBackendConfig
    from pteron.exir.export.export_model import ExportResult

__all__ = ["export"]


def export(
    model: torch.nn.Module | torch.export.ExportedProgram,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    default_max: int | None = None,
    strict: bool = False,
    partitioners: Any = None,
    compile_config: EdgeCompileConfig | None = None,
    backend_config: ExecutorchBackendConfig | None = None,
    packed_weights: bool | None = None,
    check: bool = True,
    tolerance: float | None = None,
    report: bool = True,
) -> ExportResult:
    """A PyTorch model to a checked program: captured, lowered, written, and run once.

    Args:
        model: a module, or a program that `torch.export.export` captured.
        args: example inputs; for a captured program those that it remembers, if left out.
        kwargs: example inputs by keyword.
        dynamic_shapes: as in `torch.export.export`.
        default_max: the largest extent of dynamic dimensions that have none, for which memory is planned.
            None: four times the example's extent, at least 32. The report names every such dimension.
        strict: as in `torch.export.export`.
        partitioners: one or several, or a dict from method name to them, as in
            `to_edge_transform_and_lower`.
        compile_config: settings of the edge dialect.
        backend_config: settings of `to_executorch`.
        packed_weights: store weights as this engine reads them, too, so that load packs nothing; None leaves
            it to `backend_config`.
        check: run the program on the example and compare every output with `exported.module()`. There is no
            check where the program cannot run here or draws random numbers; the report says so.
        tolerance: largest difference that the check allows, as a part of an output's largest number. None:
            1e-9 for float64, 1e-4 for float32, 1e-2 for float16, 5e-2 for bfloat16, none for integers; 5e-2
            at least for floats of a program that quantises what it computes, where a last bit decides a step.
        report: print the report, which is also in the result.

    Returns:
        The program with its report and the stages on the way: `result.save("model.pte")`, `result.load()`.

    Raises:
        ImportError: PyTorch is not installed.
        ExampleMismatchError: an output differs on the example; the text names it and how much.
        ExportError: the model cannot be exported; its children say why.
        TypeError: an argument of another type.
    """
    exporter = import_module("pteron.exir.export.export_model")
    made: ExportResult = exporter.export_model(
        model,
        args,
        kwargs,
        dynamic_shapes=dynamic_shapes,
        default_max=default_max,
        strict=strict,
        partitioners=partitioners,
        compile_config=compile_config,
        backend_config=backend_config,
        packed_weights=packed_weights,
        check=check,
        tolerance=tolerance,
        report=report,
    )
    return made
