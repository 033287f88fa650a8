"""What a recipe is made of: kinds of recipes and stages, settings of quantising and of lowering."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, EnumMeta, StrEnum
from typing import TYPE_CHECKING, Any

import torch
from torch.export import ExportedProgram

from pteron.exir.backend.partitioner import Partitioner
from pteron.exir.config.compile_config import EdgeCompileConfig
from pteron.exir.program import EdgeProgramManager

if TYPE_CHECKING:
    from torchao.core.config import AOBaseConfig
    from torchao.quantization.pt2e.quantizer import Quantizer

ModulePass = Callable[[torch.fx.GraphModule], torch.fx.GraphModule]


class StageType(StrEnum):
    """The stages that a pipeline can have."""

    SOURCE_TRANSFORM = "source_transform"
    QUANTIZE = "quantize"
    TORCH_EXPORT = "torch_export"
    TO_EDGE_TRANSFORM_AND_LOWER = "to_edge_transform_and_lower"
    TO_EDGE = "to_edge"
    EDGE_PROGRAM_MANAGER_TRANSFORM = "edge_program_manager_transform"
    TO_BACKEND = "to_backend"
    TO_EXECUTORCH = "to_executorch"


class Mode(StrEnum):
    """What a program is exported for. Both give the same program here."""

    DEBUG = "debug"
    RELEASE = "release"


class RecipeTypeMeta(EnumMeta, ABCMeta):
    """An enumeration with abstract methods."""


class RecipeType(Enum, metaclass=RecipeTypeMeta):
    """The recipes of one backend: a backend's package derives an enumeration from it."""

    @classmethod
    @abstractmethod
    def get_backend_name(cls) -> str:
        """Name of the backend, under which its provider is registered."""


@dataclass
class AOQuantizationConfig:
    """A configuration of torchao's `quantize_`, and which modules it is for (None: torchao's own choice)."""

    ao_base_config: AOBaseConfig
    filter_fn: Callable[[torch.nn.Module, str], bool] | None = None


@dataclass
class QuantizationRecipe:
    """Settings of quantising, before or after capture.

    Attributes:
        quantizers: PT2E quantizers; several are combined in order.
        ao_quantization_configs: for torchao's `quantize_` on the module; one at most is taken.
        is_qat: train the prepared module with `train_fn` in place of calibrating it.
        dynamic_batch_size: the first dimension of every input may vary while calibrating or training.
        calibration_inputs_fn: gives the inputs to calibrate with; None for the example inputs.
        train_fn: trains the prepared module; needed with `is_qat`.
        pre_prepare_passes, post_prepare_passes: graph passes around the insertion of observers.
        pre_convert_passes, post_convert_passes: graph passes around the conversion to quantised operators.
    """

    quantizers: list[Quantizer] | None = None
    ao_quantization_configs: list[AOQuantizationConfig] | None = None
    is_qat: bool = False
    dynamic_batch_size: bool = False
    calibration_inputs_fn: Callable[[], Iterable[tuple[Any, ...]]] | None = None
    train_fn: Callable[[torch.fx.GraphModule], None] | None = None
    pre_prepare_passes: list[ModulePass] | None = None
    post_prepare_passes: list[ModulePass] | None = None
    pre_convert_passes: list[ModulePass] | None = None
    post_convert_passes: list[ModulePass] | None = None

    def get_quantizers(self) -> list[Quantizer] | None:
        """The quantizers; None where there are none."""
        return self.quantizers


@dataclass
class LoweringRecipe:
    """Settings of lowering.

    Attributes:
        partitioners: for all methods, or a dict from method name to a list.
        edge_transform_passes: functions from (method name, program) to graph passes or a pass manager, which
            run before delegation.
        edge_manager_transform_passes: functions from a manager to graph passes, run one after the other.
        edge_compile_config: settings of the edge dialect.
    """

    partitioners: list[Partitioner] | dict[str, list[Partitioner]] | None = None
    edge_transform_passes: list[Callable[[str, ExportedProgram], Any]] | None = None
    edge_manager_transform_passes: list[Callable[[EdgeProgramManager], Any]] | None = None
    edge_compile_config: EdgeCompileConfig | None = None
