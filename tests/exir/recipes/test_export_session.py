"""Recipes by ExecuTorch's names: pipelines of stages, combining, the registry."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import pteron
from pteron.backends.demo import AddMulPartitionerDemo
from pteron.exir import EdgeCompileConfig, ExecutorchBackendConfig
from pteron.exir.passes.pass_manager import PassManager
from pteron.exir.recipes import (
    AOQuantizationConfig,
    BackendRecipeProvider,
    ExportRecipe,
    ExportSession,
    LoweringRecipe,
    QuantizationRecipe,
    RecipeType,
    StageType,
    export,
    recipe_registry,
)
from pteron.exir.recipes.stages import PipelineArtifact, Stage


class Scaled(nn.Module):
    """A linear, and operators that the demo partitioner takes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        return torch.mm(y, y) + y


def _example() -> tuple[Tensor]:
    return (torch.randn(8, 8, generator=torch.Generator().manual_seed(0)),)


def test_a_recipe_gives_a_program_and_every_stage() -> None:
    model, x = Scaled().eval(), _example()
    session = export(
        model, [x], ExportRecipe(executorch_backend_config=ExecutorchBackendConfig(packed_weights=True))
    )
    assert list(session.get_stage_artifacts()) == [
        StageType.SOURCE_TRANSFORM,
        StageType.QUANTIZE,
        StageType.TORCH_EXPORT,
        StageType.TO_EDGE_TRANSFORM_AND_LOWER,
        StageType.TO_EXECUTORCH,
    ]
    (ours,) = session.run_method()
    torch.testing.assert_close(ours, model(*x))
    torch.testing.assert_close(pteron.load(session.get_pte_buffer()).run("forward", *x), model(*x))
    assert session.get_exported_program().graph is not None
    assert session.get_edge_program_manager().methods == {"forward"}
    assert session.get_executorch_program().execution_plan[0].name == "forward"


def test_methods_shapes_constants_and_partitioners_by_method(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, x = Scaled().eval(), _example()
    seen: list[str] = []

    def passes(method: str, program: torch.export.ExportedProgram) -> Any:
        seen.append(method)
        return PassManager([lambda module: None]) if method == "one" else []

    recipe = ExportRecipe(
        lowering_recipe=LoweringRecipe(
            partitioners={"one": [AddMulPartitionerDemo()]},
            edge_transform_passes=[passes],
            edge_manager_transform_passes=[lambda manager: seen.append("manager") or []],  # type: ignore[func-returns-value]
        ),
    )
    session = ExportSession(
        {"one": model, "two": nn.Linear(8, 2).eval()},
        {"one": [x], "two": [x]},
        recipe,
        dynamic_shapes={"two": ({0: Dim("rows", min=1, max=16)},)},
        constant_methods={"size": 8},
    )
    session.export()
    assert sorted(seen) == ["manager", "one", "two"]
    session.save_to_pte(str(tmp_path / "both"))
    program = pteron.load(tmp_path / "both.pte")
    assert program.run("two", torch.ones(3, 8)).shape == (3, 2)
    assert program.run("size") == 8
    assert program.backends("one")
    assert not program.backends("two")
    session.print_delegation_info()
    printed = capsys.readouterr().out
    assert "Delegation info for method 'one':\nTotal delegated subgraphs: " in printed
    assert "Delegation info for method 'two':\nTotal delegated subgraphs: 0" in printed


def test_shapes_of_one_method_may_be_a_dict_by_argument() -> None:
    session = export(
        nn.Linear(8, 2).eval(),
        [_example()],
        ExportRecipe(strict=False),
        dynamic_shapes={"input": {0: Dim("rows", min=1, max=16)}},
    )
    (ours,) = session.run_method("forward", (torch.ones(3, 8),))
    assert ours.shape == (3, 2)


def test_separate_stages_give_the_same_program_as_the_joined_one(tmp_path: Path) -> None:
    model, x = Scaled().eval(), _example()
    captured = torch.export.export(model, x)
    torch.export.save(captured, tmp_path / "captured.pt2")
    lowering = LoweringRecipe(
        partitioners=[AddMulPartitionerDemo()],
        edge_compile_config=EdgeCompileConfig(_check_ir_validity=False),
    )
    stages = [StageType.TO_EDGE, StageType.TO_BACKEND, StageType.TO_EXECUTORCH]
    separate = export(
        str(tmp_path / "captured.pt2"), None, ExportRecipe(lowering_recipe=lowering, pipeline_stages=stages)
    )
    joined = export(captured, [x], ExportRecipe(lowering_recipe=lowering))
    assert joined.get_edge_program_manager().delegation_report()["forward"].backends == (
        separate.get_edge_program_manager().delegation_report()["forward"].backends
    )
    listings = [pteron.load(each.get_pte_buffer()).listing() for each in (separate, joined)]
    assert listings[0] == listings[1]


def test_a_stage_of_ones_own_takes_the_place_of_the_built_in_one() -> None:
    class Doubled(Stage):
        stage_type = StageType.SOURCE_TRANSFORM
        valid_predecessor_stages: Sequence[StageType] = ()  # type: ignore[assignment]
        can_start_pipeline = True

        def run(self, artifact: PipelineArtifact) -> None:
            models = {name: nn.Sequential(model, model) for name, model in artifact.data.items()}
            self._artifact = artifact.copy_with_new_data(models)

    model, x = nn.Linear(8, 8).eval(), _example()
    session = ExportSession(model, [x])
    session.register_stage(StageType.SOURCE_TRANSFORM, Doubled())
    session.export()
    torch.testing.assert_close(session.run_method()[0], model(model(*x)))


def test_pt2e_and_torchao_quantise() -> None:
    pytest.importorskip("torchao")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torchao.quantization import Int8WeightOnlyConfig
        from torchao.quantization.pt2e.observer import MinMaxObserver
        from torchao.quantization.pt2e.quantizer import (
            QuantizationAnnotation,
            QuantizationSpec,
            Quantizer,
        )

        class Inputs(Quantizer):  # type: ignore[misc]
            """Quantises the first operand of every linear."""

            def annotate(self, model: torch.fx.GraphModule) -> torch.fx.GraphModule:
                spec = QuantizationSpec(
                    dtype=torch.int8,
                    observer_or_fake_quant_ctr=MinMaxObserver,
                    quant_min=-128,
                    quant_max=127,
                    qscheme=torch.per_tensor_affine,
                )
                for node in model.graph.nodes:
                    if node.target == torch.ops.aten.linear.default:
                        node.meta["quantization_annotation"] = QuantizationAnnotation(
                            input_qspec_map={node.args[0]: spec}, _annotated=True
                        )
                return model

            def validate(self, model: torch.fx.GraphModule) -> None:
                pass

        model, x = nn.Linear(8, 8).eval(), _example()
        order: list[str] = []

        def noted(name: str) -> Any:
            return lambda module: (order.append(name), module)[1]

        recipe = QuantizationRecipe(
            quantizers=[Inputs()],
            calibration_inputs_fn=lambda: (order.append("calibrate"), [x])[1],
            pre_prepare_passes=[noted("before prepare")],
            post_prepare_passes=[noted("after prepare")],
            pre_convert_passes=[noted("before convert")],
            post_convert_passes=[noted("after convert")],
        )
        session = export(model, [x], ExportRecipe(quantization_recipe=recipe))
        assert order == ["before prepare", "after prepare", "calibrate", "before convert", "after convert"]
        assert any("quantize" in name for name in pteron.load(session.get_pte_buffer()).operators())
        torch.testing.assert_close(session.run_method()[0], model(*x), atol=0.05, rtol=0)

        weights = QuantizationRecipe(ao_quantization_configs=[AOQuantizationConfig(Int8WeightOnlyConfig())])
        session = export(model, [x], ExportRecipe(quantization_recipe=weights))
        torch.testing.assert_close(session.run_method()[0], model(*x), atol=0.05, rtol=0)
        assert type(model.weight.data) is Tensor, "the caller's model is left as it was"


def test_combining_joins_lists_and_refuses_contradictions() -> None:
    first = ExportRecipe(
        "a",
        lowering_recipe=LoweringRecipe([AddMulPartitionerDemo()], edge_compile_config=EdgeCompileConfig()),
    )
    second = ExportRecipe("b", lowering_recipe=LoweringRecipe([AddMulPartitionerDemo()]))
    both = ExportRecipe.combine([first, second])
    assert both.name == "a_b"
    assert both.lowering_recipe is not None
    assert len(both.lowering_recipe.partitioners or ()) == 2
    assert export(Scaled().eval(), [_example()], both).get_edge_program_manager().methods == {"forward"}
    with pytest.raises(ValueError, match="conflicting 'strict' values"):
        ExportRecipe.combine([first, ExportRecipe("c", strict=False)])
    lenient = ExportRecipe(
        "d", lowering_recipe=LoweringRecipe(edge_compile_config=EdgeCompileConfig(_check_ir_validity=False))
    )
    with pytest.raises(ValueError, match=r"disagree on _check_ir_validity \(a=True, d=False\)"):
        ExportRecipe.combine([first, lenient])


def test_a_backends_recipes_come_from_its_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    class Kinds(RecipeType):
        FP32 = "fp32"
        INT8 = "int8"

        @classmethod
        def get_backend_name(cls) -> str:
            return "mine"

    class Provider(BackendRecipeProvider):
        backend_name = "mine"

        def get_supported_recipes(self) -> Sequence[RecipeType]:
            return [Kinds.FP32]

        def create_recipe(self, recipe_type: RecipeType, **kwargs: Any) -> ExportRecipe | None:
            return ExportRecipe(f"mine_{kwargs['size']}") if recipe_type is Kinds.FP32 else None

    monkeypatch.setattr(recipe_registry, "_providers", {})
    with pytest.raises(ValueError, match="Backend 'mine' not available"):
        ExportRecipe.get_recipe(Kinds.FP32, size=3)
    recipe_registry.register_backend_recipe_provider(Provider())
    assert ExportRecipe.get_recipe(Kinds.FP32, size=3).name == "mine_3"
    with pytest.raises(ValueError, match=r"Recipe 'int8' not supported by 'mine'. Supported: \['fp32'\]"):
        ExportRecipe.get_recipe(Kinds.INT8)


def test_pipelines_that_cannot_run_are_refused() -> None:
    model, x = nn.ReLU(), _example()
    captured = torch.export.export(model, x)
    with pytest.raises(ValueError, match=r"example_inputs are required when model is nn\.Module"):
        ExportSession(model)
    with pytest.raises(TypeError, match="Unsupported model type"):
        ExportSession(len, [x])
    for given, stages, text in [
        (model, [StageType.TO_EDGE, StageType.TO_EXECUTORCH], "Invalid transition from to_edge"),
        (model, [StageType.TO_EXECUTORCH], "cannot start a pipeline"),
        (captured, [StageType.TORCH_EXPORT], "Cannot run TORCH_EXPORT stage.* with ExportedProgram input"),
    ]:
        session = ExportSession(given, [x], ExportRecipe(pipeline_stages=stages))
        with pytest.raises(ValueError, match=text):
            session.export()
        with pytest.raises(RuntimeError, match="Executorch program manager is not initialized"):
            session.get_pte_buffer()
    with pytest.raises(pteron.ExportError, match="ETRecord was not generated"):
        export(model, [x]).get_etrecord()
    assert export(model, [x], generate_etrecord=True).get_etrecord().exported_program is not None


def test_the_names_are_those_of_executorch() -> None:
    code = """
import pteron.compat
pteron.compat.install(replace=True)
import executorch.export, torch
from executorch.export import export, ExportRecipe, ExportSession, LoweringRecipe, QuantizationRecipe
from executorch.export import AOQuantizationConfig, BackendRecipeProvider, RecipeType
from executorch.export import StageType, recipe_registry
from executorch.export.recipe import Mode
from executorch.export.recipe_registry import RecipeRegistry
from executorch.export.stages import PipelineArtifact, Stage, TorchExportStage
from executorch.export.target_recipes import get_android_recipe, get_ios_recipe
from executorch.export.types import StageType as same
from executorch.export.utils import is_supported_platform_for_coreml_lowering
import executorch.export.export
assert same is StageType and RecipeRegistry() is recipe_registry
assert executorch.export.export is export
session = export(torch.nn.ReLU(), [(torch.randn(3),)], ExportRecipe())
assert (session.run_method()[0] >= 0).all()
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=120)
