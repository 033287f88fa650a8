"""The stages by one path, as ExecuTorch has them (`executorch.export.stages`)."""

from __future__ import annotations

from pteron.exir.recipes.lowering_stages import (
    EdgeProgramManagerTransformStage,
    EdgeTransformAndLowerStage,
    ExecutorchStage,
    ToBackendStage,
    ToEdgeStage,
    TorchExportStage,
)
from pteron.exir.recipes.pipeline_stage import PipelineArtifact, Stage
from pteron.exir.recipes.quantize_stages import QuantizeStage, SourceTransformStage

__all__ = [
    "EdgeProgramManagerTransformStage",
    "EdgeTransformAndLowerStage",
    "ExecutorchStage",
    "PipelineArtifact",
    "QuantizeStage",
    "SourceTransformStage",
    "Stage",
    "ToBackendStage",
    "ToEdgeStage",
    "TorchExportStage",
]
