"""The stages from a module to a program: capture, edge dialect, graph passes, delegation, writing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import zip_longest
from typing import Any

import torch
from torch.export import ExportedProgram

from pteron.exir.backend.backend_api import validation_disabled
from pteron.exir.backend.delegation_info import DelegationInfo, get_delegation_info
from pteron.exir.config.backend_config import ExecutorchBackendConfig
from pteron.exir.config.compile_config import EdgeCompileConfig
from pteron.exir.program import EdgeProgramManager, to_edge
from pteron.exir.recipes.pipeline_stage import PipelineArtifact, PlacedStage
from pteron.exir.recipes.recipe_parts import LoweringRecipe, StageType
from pteron.exir.to_edge_transform_and_lower import to_edge_transform_and_lower

PassFunctions = list[Callable[[str, ExportedProgram], Any]]


class TorchExportStage(PlacedStage):
    """Capture of every method with `torch.export.export`, and passes over what it gave."""

    def __init__(
        self,
        aten_transform_passes: list[Callable[[str, ExportedProgram], ExportedProgram]] | None = None,
        strict: bool = True,
    ) -> None:
        self._aten_transform_passes = aten_transform_passes
        self.strict = strict

    TYPE = StageType.TORCH_EXPORT
    AFTER = (
        StageType.SOURCE_TRANSFORM,
        StageType.QUANTIZE,
    )
    CAN_START = True

    def run(self, artifact: PipelineArtifact) -> None:
        """ValueError where a method has no example inputs or a pass is no function."""
        examples = artifact.get_context("example_inputs")
        shapes = artifact.get_context("dynamic_shapes", {})
        programs = {}
        for method, model in artifact.data.items():
            if method not in examples:
                raise ValueError(f"Example inputs for method {method} not found.")
            with torch.no_grad():
                program = torch.export.export(
                    model, examples[method][0], dynamic_shapes=shapes.get(method), strict=self.strict
                )
            for each in self._aten_transform_passes or ():
                if not callable(each):
                    raise ValueError(
                        "Aten transform passes must be a callable that can transform and return an "
                        "exported program"
                    )
                program = each(method, program)
            programs[method] = program
        self._artifact = artifact.copy_with_new_data(programs)


class _LoweringStage(PlacedStage):
    """A stage that gives an `EdgeProgramManager`."""

    @property
    def delegation_info(self) -> DelegationInfo | None:
        """Counts of method `forward`, or of the first by name."""
        found: DelegationInfo | None = self.get_artifacts().get_context("delegation_info")
        return found

    @property
    def delegation_info_by_method(self) -> dict[str, DelegationInfo]:
        """Counts of every method."""
        found: dict[str, DelegationInfo] = self.get_artifacts().get_context("delegation_info_by_method")
        return found

    def _hand_on(self, artifact: PipelineArtifact, manager: EdgeProgramManager) -> None:
        made = artifact.copy_with_new_data(manager)
        counts = {
            name: get_delegation_info(manager.exported_program(name).graph_module)
            for name in sorted(manager.methods)
        }
        made.add_context("delegation_info_by_method", counts)
        made.add_context("delegation_info", counts.get("forward", next(iter(counts.values()), None)))
        self._artifact = made


class EdgeTransformAndLowerStage(_LoweringStage):
    """`to_edge_transform_and_lower` over all methods."""

    def __init__(
        self,
        partitioners: Any = None,
        transform_passes: PassFunctions | None = None,
        compile_config: EdgeCompileConfig | None = None,
    ) -> None:
        self._partitioners = partitioners
        self._transform_passes = transform_passes
        self._compile_config = compile_config

    @classmethod
    def from_recipe(cls, lowering_recipe: LoweringRecipe | None) -> EdgeTransformAndLowerStage:
        """The stage with a recipe's settings."""
        if lowering_recipe is None:
            return cls()
        return cls(
            lowering_recipe.partitioners,
            lowering_recipe.edge_transform_passes,
            lowering_recipe.edge_compile_config,
        )

    TYPE = StageType.TO_EDGE_TRANSFORM_AND_LOWER
    AFTER = (StageType.TORCH_EXPORT,)
    CAN_START = True

    def run(self, artifact: PipelineArtifact) -> None:
        """ValueError where a pass function is no function."""
        with validation_disabled():
            manager = to_edge_transform_and_lower(
                artifact.data,
                partitioner=self._partitioners,
                transform_passes=_passes_by_method(self._transform_passes, artifact.data),
                constant_methods=artifact.get_context("constant_methods"),
                compile_config=self._compile_config,
                generate_etrecord=artifact.get_context("generate_etrecord", False),
            )
        self._hand_on(artifact, manager)


class ToEdgeStage(PlacedStage):
    """`to_edge` over all methods."""

    def __init__(self, edge_compile_config: EdgeCompileConfig | None = None) -> None:
        self._edge_compile_config = edge_compile_config

    @classmethod
    def from_recipe(cls, lowering_recipe: LoweringRecipe | None) -> ToEdgeStage:
        """The stage with a recipe's settings."""
        return cls() if lowering_recipe is None else cls(lowering_recipe.edge_compile_config)

    TYPE = StageType.TO_EDGE
    AFTER = (StageType.TORCH_EXPORT,)
    CAN_START = True

    def run(self, artifact: PipelineArtifact) -> None:
        """The methods in the edge dialect."""
        manager = to_edge(
            artifact.data,
            constant_methods=artifact.get_context("constant_methods"),
            compile_config=self._edge_compile_config,
            generate_etrecord=artifact.get_context("generate_etrecord", False),
        )
        self._artifact = artifact.copy_with_new_data(manager)


class EdgeProgramManagerTransformStage(PlacedStage):
    """Graph passes over a manager: those chosen by method, then those chosen for the whole manager."""

    def __init__(
        self,
        edge_transform_passes: PassFunctions | None = None,
        edge_manager_transform_passes: list[Callable[[EdgeProgramManager], Any]] | None = None,
    ) -> None:
        self._edge_transform_passes = edge_transform_passes or []
        self._edge_manager_transform_passes = edge_manager_transform_passes or []

    @classmethod
    def from_recipe(cls, lowering_recipe: LoweringRecipe | None) -> EdgeProgramManagerTransformStage:
        """The stage with a recipe's settings."""
        if lowering_recipe is None:
            return cls()
        return cls(lowering_recipe.edge_transform_passes, lowering_recipe.edge_manager_transform_passes)

    TYPE = StageType.EDGE_PROGRAM_MANAGER_TRANSFORM
    AFTER = (
        StageType.TO_EDGE,
        StageType.TO_EDGE_TRANSFORM_AND_LOWER,
    )

    def run(self, artifact: PipelineArtifact) -> None:
        """TypeError where the stage before gave no manager; ValueError where a function is none."""
        manager = artifact.data
        if not isinstance(manager, EdgeProgramManager):
            raise TypeError(f"Expected EdgeProgramManager but got {type(manager)}")
        programs = {name: manager.exported_program(name) for name in manager.methods}
        chosen = _passes_by_method(self._edge_transform_passes, programs)
        if chosen is not None:
            manager = manager.transform(chosen)
        for function in self._edge_manager_transform_passes:
            passes = function(manager)
            if passes:
                manager = manager.transform(passes)
        self._artifact = artifact.copy_with_new_data(manager)


class ToBackendStage(_LoweringStage):
    """Delegation, one partitioner after the other."""

    def __init__(self, partitioners: Any = None) -> None:
        self._partitioners = partitioners

    @classmethod
    def from_recipe(cls, lowering_recipe: LoweringRecipe | None) -> ToBackendStage:
        """The stage with a recipe's settings."""
        return cls() if lowering_recipe is None else cls(lowering_recipe.partitioners)

    TYPE = StageType.TO_BACKEND
    AFTER = (
        StageType.TO_EDGE,
        StageType.EDGE_PROGRAM_MANAGER_TRANSFORM,
    )

    def run(self, artifact: PipelineArtifact) -> None:
        """RuntimeError where the stage before gave nothing."""
        manager = artifact.data
        if manager is None:
            raise RuntimeError("Edge program manager is not set.")
        with validation_disabled():
            for partitioner in self._rounds():
                manager = manager.to_backend(partitioner)
        self._hand_on(artifact, manager)

    def _rounds(self) -> list[Any]:
        given = self._partitioners
        if not isinstance(given, dict):
            return list(given or ())
        rounds = zip_longest(*given.values())
        return [
            {method: each for method, each in zip(given, listed, strict=True) if each is not None}
            for listed in rounds
        ]


class ExecutorchStage(PlacedStage):
    """`to_executorch`."""

    def __init__(self, backend_config: ExecutorchBackendConfig | None) -> None:
        self._backend_config = backend_config

    TYPE = StageType.TO_EXECUTORCH
    AFTER = (
        StageType.TO_EDGE_TRANSFORM_AND_LOWER,
        StageType.TO_BACKEND,
        StageType.EDGE_PROGRAM_MANAGER_TRANSFORM,
    )

    def run(self, artifact: PipelineArtifact) -> None:
        """RuntimeError where the stage before gave nothing."""
        if artifact.data is None:
            raise RuntimeError("Edge program manager is not set.")
        self._artifact = artifact.copy_with_new_data(artifact.data.to_executorch(self._backend_config))


def _passes_by_method(
    functions: PassFunctions | None, programs: Mapping[str, ExportedProgram]
) -> dict[str, list[Any]] | None:
    """The passes of each method in order, a pass manager as one of them; None where there are none."""
    chosen: dict[str, list[Any]] = {}
    for method, program in programs.items():
        for function in functions or ():
            if not callable(function):
                raise ValueError("Transform passes must be a callable that resolves to passes")
            passes = function(method, program)
            chosen.setdefault(method, []).extend([passes] if callable(passes) else passes)
    return {method: passes for method, passes in chosen.items() if passes} or None
