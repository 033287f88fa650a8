"""A pipeline of stages over the methods of a program: `export` and `ExportSession`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from pteron.exir.backend.delegation_info import DelegationInfo
from pteron.exir.backend.partition_report import text_table
from pteron.exir.executorch_program_manager import ExecutorchProgramManager
from pteron.exir.method_map import DEFAULT_METHOD
from pteron.exir.program import EdgeProgramManager
from pteron.exir.recipes import stages as built_in
from pteron.exir.recipes.export_recipe import ExportRecipe
from pteron.exir.recipes.pipeline_stage import PipelineArtifact, Stage
from pteron.exir.recipes.recipe_parts import StageType
from pteron.exir.schema import Program

# What a kind of model has been through already.
_DONE: dict[str, tuple[set[StageType], str]] = {
    "nn.Module": (set(), ""),
    "GraphModule": (
        {StageType.SOURCE_TRANSFORM, StageType.QUANTIZE},
        "GraphModule is already quantized. Remove {} from pipeline_stages or use nn.Module input.",
    ),
    "ExportedProgram": (
        {StageType.SOURCE_TRANSFORM, StageType.QUANTIZE, StageType.TORCH_EXPORT},
        "ExportedProgram is already exported. Remove {} from pipeline_stages or use nn.Module/GraphModule "
        "input.",
    ),
}
_EDGE_STAGES = (
    StageType.TO_BACKEND,
    StageType.EDGE_PROGRAM_MANAGER_TRANSFORM,
    StageType.TO_EDGE_TRANSFORM_AND_LOWER,
    StageType.TO_EDGE,
)


def export(
    model: Any,
    example_inputs: Any = None,
    export_recipe: ExportRecipe | None = None,
    name: str | None = None,
    dynamic_shapes: Any = None,
    constant_methods: Mapping[str, Any] | None = None,
    artifact_dir: str | None = None,
    generate_etrecord: bool = False,
) -> ExportSession:
    """An `ExportSession` of these arguments that has run; they are described there."""
    session = ExportSession(
        model,
        example_inputs,
        export_recipe,
        name,
        dynamic_shapes,
        constant_methods,
        artifact_dir,
        generate_etrecord,
    )
    session.export()
    return session


class ExportSession:
    """One export: its stages, and what each of them made.

    `model`: a module, a quantised `GraphModule`, an `ExportedProgram`, a dict from method name to one of
    them, or the path of a file that `torch.export.save` wrote. `example_inputs`: a list of input tuples, or
    a dict from method name to one; the first is for capture, all of them are for calibrating; an
    `ExportedProgram` needs none. `export_recipe`: the settings, None for the defaults. `dynamic_shapes`: by
    method name, or those of the one method. `constant_methods`: as in `to_edge`. `name`, `artifact_dir`: in
    the context of all stages.
    `generate_etrecord`: as in `to_edge`.

    ValueError where examples are missing; TypeError for another kind of model.
    """

    def __init__(
        self,
        model: Any,
        example_inputs: Any = None,
        export_recipe: ExportRecipe | None = None,
        name: str | None = None,
        dynamic_shapes: Any = None,
        constant_methods: Mapping[str, Any] | None = None,
        artifact_dir: str | None = None,
        generate_etrecord: bool | None = False,
    ) -> None:
        if isinstance(model, str):
            model = torch.export.load(model)
        self._model: dict[str, Any] = model if isinstance(model, dict) else {DEFAULT_METHOD: model}
        self._input_model_type = _kind_of(next(iter(self._model.values())))
        if example_inputs is None and self._input_model_type != "ExportedProgram":
            raise ValueError(
                f"example_inputs are required when model is {self._input_model_type}. Only ExportedProgram "
                "inputs "
                "can omit example_inputs."
            )
        by_method = isinstance(example_inputs, dict)
        self._example_inputs = example_inputs if by_method else {DEFAULT_METHOD: example_inputs or []}
        self._export_recipe = export_recipe or ExportRecipe()
        self._lowering_recipe = self._export_recipe.lowering_recipe
        self._pipeline_stages = self._export_recipe.pipeline_stages or self._get_default_pipeline()
        self._stage_registry = {
            each: stage for each in self._pipeline_stages if (stage := self._built_in(each)) is not None
        }
        self._run_context: dict[str, Any] = {
            "example_inputs": self._example_inputs,
            "dynamic_shapes": _shapes_by_method(dynamic_shapes, self._model),
            "constant_methods": constant_methods,
            "export_recipe": self._export_recipe,
            "session_name": name,
            "artifact_dir": artifact_dir,
            "generate_etrecord": bool(generate_etrecord),
        }
        self._stage_to_artifacts: dict[StageType, PipelineArtifact] = {}

    def _get_default_pipeline(self) -> list[StageType]:
        done, _ = _DONE[self._input_model_type]
        capture = (StageType.SOURCE_TRANSFORM, StageType.QUANTIZE, StageType.TORCH_EXPORT)
        lowering = self._lowering_recipe
        has_manager_passes = lowering is not None and bool(lowering.edge_manager_transform_passes)
        return [
            *(each for each in capture if each not in done),
            StageType.TO_EDGE_TRANSFORM_AND_LOWER,
            *([StageType.EDGE_PROGRAM_MANAGER_TRANSFORM] if has_manager_passes else []),
            StageType.TO_EXECUTORCH,
        ]

    def _built_in(self, stage: str) -> Stage | None:
        recipe, lowering = self._export_recipe, self._lowering_recipe
        match stage:
            case StageType.SOURCE_TRANSFORM:
                return built_in.SourceTransformStage(
                    recipe.quantization_recipe, in_place=recipe.source_transform_in_place
                )
            case StageType.QUANTIZE:
                return built_in.QuantizeStage(recipe.quantization_recipe)
            case StageType.TORCH_EXPORT:
                return built_in.TorchExportStage(recipe.aten_transform_passes, strict=recipe.strict)
            case StageType.TO_EDGE_TRANSFORM_AND_LOWER:
                return built_in.EdgeTransformAndLowerStage.from_recipe(lowering)
            case StageType.TO_EDGE:
                return built_in.ToEdgeStage.from_recipe(lowering)
            case StageType.EDGE_PROGRAM_MANAGER_TRANSFORM:
                return self._manager_passes()
            case StageType.TO_BACKEND:
                return built_in.ToBackendStage.from_recipe(lowering)
            case StageType.TO_EXECUTORCH:
                return built_in.ExecutorchStage(recipe.executorch_backend_config)
            case _:
                return None

    def _manager_passes(self) -> Stage:
        lowering = self._lowering_recipe
        # Behind to_edge_transform_and_lower the passes of single methods have run already.
        if lowering is not None and StageType.TO_EDGE_TRANSFORM_AND_LOWER in self._pipeline_stages:
            return built_in.EdgeProgramManagerTransformStage(None, lowering.edge_manager_transform_passes)
        return built_in.EdgeProgramManagerTransformStage.from_recipe(lowering)

    def register_stage(self, stage_type: StageType, stage: Stage) -> None:
        """Put a stage in the place of the built-in one."""
        self._stage_registry[stage_type] = stage

    def get_registered_stage(self, stage_type: StageType) -> Stage | None:
        """The stage of a type; None where there is none."""
        return self._stage_registry.get(stage_type)

    def get_all_registered_stages(self) -> dict[StageType, Stage]:
        """All stages by type."""
        return self._stage_registry

    def export(self) -> None:
        """Run the pipeline from its beginning.

        ValueError where the stages cannot follow each other or do not fit the kind of model.
        """
        self._validate_pipeline_sequence(self._pipeline_stages)
        self._stage_to_artifacts.clear()
        artifact = PipelineArtifact(self._model, self._run_context)
        for each in self._pipeline_stages:
            stage = self._stage_registry[each]
            started = time.perf_counter()
            stage.run(artifact)
            artifact = stage.get_artifacts()
            artifact.add_context("duration_ms", int((time.perf_counter() - started) * 1000))
            self._stage_to_artifacts[each] = artifact

    def _validate_pipeline_sequence(self, stages: Sequence[StageType]) -> None:
        if not stages:
            raise ValueError("Pipeline stages cannot be empty")
        done, remedy = _DONE[self._input_model_type]
        twice = ", ".join(each.name for each in stages if each in done)
        if twice:
            raise ValueError(
                f"Cannot run {twice} stage(s) with {self._input_model_type} input. {remedy.format(twice)}"
            )
        before: StageType | None = None
        for each in stages:
            stage = self._stage_registry.get(each)
            if stage is None:
                raise ValueError(
                    f"Stage {each} not found in registry, register it using session.register_stage()"
                )
            if before is None and not stage.can_start_pipeline:
                raise ValueError(f"Stage {each} cannot start a pipeline. ")
            allowed = stage.valid_predecessor_stages
            if before is not None and allowed and before not in allowed:
                raise ValueError(
                    f"Invalid transition from {before} to {each}. Valid predecessors for {each}: {allowed}"
                )
            before = each

    def get_stage_artifacts(self) -> dict[StageType, PipelineArtifact]:
        """What each stage made."""
        return self._stage_to_artifacts

    def get_exported_program(self, method_name: str = DEFAULT_METHOD) -> ExportedProgram:
        """The captured program of a method. RuntimeError before there is one; KeyError for another name."""
        programs = self._made(StageType.TORCH_EXPORT)
        if programs is None:
            raise RuntimeError("Exported program is not available. Run Torch Export Stage first.")
        if method_name not in programs:
            raise KeyError(
                f"Method name '{method_name}' not found in exported programs. "
                f"Available methods: {list(programs)}"
            )
        program: ExportedProgram = programs[method_name]
        return program

    def get_edge_program_manager(self) -> EdgeProgramManager:
        """The methods in the edge dialect, after the last stage that ran. RuntimeError before one ran."""
        for stage in reversed(self._pipeline_stages):
            if stage in _EDGE_STAGES and (manager := self._made(stage)) is not None:
                found: EdgeProgramManager = manager
                return found
        raise RuntimeError(
            "Edge program manager is not available. Run one of the edge stages first: "
            "TO_EDGE_TRANSFORM_AND_LOWER, TO_EDGE, EDGE_PROGRAM_MANAGER_TRANSFORM, or TO_BACKEND."
        )

    def get_executorch_program_manager(self) -> ExecutorchProgramManager:
        """The finished program. RuntimeError before it was made."""
        manager = self._made(StageType.TO_EXECUTORCH)
        if manager is None:
            raise RuntimeError("Executorch program manager is not initialized. Run Executorch Stage first.")
        found: ExecutorchProgramManager = manager
        return found

    def get_executorch_program(self) -> Program:
        """The finished program as objects."""
        return self.get_executorch_program_manager().executorch_program

    def get_pte_buffer(self) -> bytes:
        """The bytes of the program file."""
        return self.get_executorch_program_manager().buffer

    def save_to_pte(self, output_name: str) -> None:
        """Write the program; `.pte` is added where the name lacks it. Data files go beside it.

        AssertionError without a name; OSError where a file cannot be written.
        """
        if not output_name:
            raise AssertionError("Need a valid output name")  # the type that callers know
        path = Path(output_name if output_name.endswith(".pte") else f"{output_name}.pte")
        manager = self.get_executorch_program_manager()
        manager.save(path)
        manager.write_tensor_data_to_file(path.parent)

    def get_example_input(self, method_name: str = DEFAULT_METHOD) -> tuple[Any, ...]:
        """The example that a method was captured with. KeyError or ValueError where there is none."""
        if method_name not in self._example_inputs:
            raise KeyError(f"Method name '{method_name}' not found in example inputs")
        if not self._example_inputs[method_name]:
            raise ValueError(f"Example inputs list for method {method_name} is empty")
        example: tuple[Any, ...] = self._example_inputs[method_name][0]
        return example

    def run_method(
        self, method_name: str = DEFAULT_METHOD, example_inputs: tuple[Any, ...] | None = None
    ) -> Sequence[Any]:
        """Flat outputs of a method for these inputs, or for its example."""
        from pteron.runtime import Runtime

        inputs = self.get_example_input(method_name) if example_inputs is None else example_inputs
        program = Runtime.get().load_program(self.get_pte_buffer())
        method = program.load_method(method_name)
        if method is None:
            raise RuntimeError(f"Failed to load method '{method_name}' from the program")
        return method.execute(inputs)

    def print_delegation_info(self) -> None:
        """Print the counts of delegated and other nodes, by method."""
        found: dict[str, DelegationInfo] = {}
        for artifact in self._stage_to_artifacts.values():
            found = artifact.get_context("delegation_info_by_method", found)
        if not found:
            print("No delegation info available")
        for method, info in sorted(found.items()):
            print(f"Delegation info for method '{method}':")
            print(info.get_summary())
            rows = [tuple(map(str, row)) for row in info.rows()]
            print("\n".join(text_table(("operator", "delegated", "in the runtime"), rows)))

    def get_etrecord(self) -> Any:
        """The ETRecord of the program; ExportError where it was not asked for."""
        return self.get_executorch_program_manager().get_etrecord()

    def _made(self, stage: StageType) -> Any:
        artifact = self._stage_to_artifacts.get(stage)
        return None if artifact is None else artifact.data


def _kind_of(model: Any) -> str:
    if isinstance(model, ExportedProgram):
        return "ExportedProgram"
    if isinstance(model, torch.fx.GraphModule):
        return "GraphModule"
    if isinstance(model, torch.nn.Module):
        return "nn.Module"
    raise TypeError(f"Unsupported model type: {type(model)}")


def _shapes_by_method(given: Any, methods: Mapping[str, Any]) -> dict[str, Any]:
    if given is None:
        return {}
    # A dict may also be the shapes of one method, by argument.
    if isinstance(given, dict) and given.keys() <= methods.keys():
        return given
    return {DEFAULT_METHOD: given}
