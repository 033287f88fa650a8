"""ExecuTorch's module paths resolve to ours."""

from __future__ import annotations

import importlib

import pytest

from pteron.compat import install, is_installed
from pteron.compat.module_paths import MODULE_PATHS
from tests.support.own_interpreter import output_of

#: Modules of the table that belong to the run half; everything else needs torch and is there today.
RUN_HALF = {"extension.pybindings.portable_lib", "runtime"}

#: What examples import from each path.
NAMES = {
    "devtools": ["BundledProgram"],
    "devtools.bundled_program": [],
    "devtools.bundled_program.config": ["MethodTestCase", "MethodTestSuite"],
    "devtools.bundled_program.core": ["BundledProgram", "MethodTestSuite"],
    "devtools.bundled_program.serialize": ["serialize_from_bundled_program_to_flatbuffer"],
    "export": ["ExportRecipe", "ExportSession", "StageType", "export", "recipe_registry"],
    "export.export": ["ExportSession", "export"],
    "export.recipe": ["AOQuantizationConfig", "ExportRecipe", "LoweringRecipe", "Mode", "RecipeType"],
    "export.recipe_provider": ["BackendRecipeProvider"],
    "export.recipe_registry": ["RecipeRegistry", "recipe_registry"],
    "export.stages": ["PipelineArtifact", "QuantizeStage", "Stage", "ToBackendStage"],
    "export.target_recipes": ["get_android_recipe", "get_ios_recipe"],
    "export.types": ["StageType"],
    "export.utils": ["is_supported_platform_for_coreml_lowering"],
    "exir.tensor_layout": ["TensorLayout"],
    "devtools.backend_debug": ["get_delegation_info", "DelegationBreakdown"],
    "devtools.backend_debug.delegation_info": ["DelegationInfo", "print_delegation_info"],
    "exir": [
        "to_edge",
        "capture",
        "CaptureConfig",
        "EdgeCompileConfig",
        "EdgeProgramManager",
        "ExecutorchBackendConfig",
        "ExecutorchProgramManager",
        "ExecutorchProgram",
        "ExirExportedProgram",
        "ExportedProgram",
        "ExportGraphSignature",
        "Value",
        "to_edge_transform_and_lower",
    ],
    "exir.print_program": ["print_program", "pretty_print"],
    "exir.backend.backend_api": [
        "to_backend",
        "MethodCompileSpec",
        "MethodProgramsPartitionerSpec",
        "disable_validation",
        "validation_disabled",
        "lower_all_submodules_to_backend",
        "remove_used_metadata",
    ],
    "exir.backend.backend_details": [
        "BackendDetails",
        "PreprocessResult",
        "ExportedProgram",
        "enforcedmethod",
    ],
    "exir.backend.compile_spec_schema": ["CompileSpec"],
    "exir.backend.partitioner": ["DelegationSpec", "Partitioner", "PartitionResult"],
    "exir.backend.operator_support": ["DontPartition", "DontPartitionName", "DontPartitionModule"],
    "exir.backend.utils": [
        "DelegateMappingBuilder",
        "WhyNoPartition",
        "WhyNoPartitionReporter",
        "format_delegated_graph",
        "get_delegated_payload",
        "get_delegates",
        "get_non_lowered_nodes",
        "is_identical_graph",
        "is_shape_dynamic",
        "print_delegated_graph",
        "tag_constant_data",
        "tag_mutated_buffer",
    ],
    "exir.backend.canonical_partitioners.all_node_partitioner": ["AllNodePartitioner"],
    "exir.backend.canonical_partitioners.config_partitioner": [
        "ConfigerationBasedPartitioner",
        "PartitionerConfig",
        "format_target_name",
    ],
    "exir.backend.canonical_partitioners.duplicate_constant_node_pass": ["duplicate_constant_node"],
    "exir.backend.canonical_partitioners.group_partitioner": ["GroupBasedPartitioner"],
    "exir.backend.canonical_partitioners.pattern_op_partitioner": [
        "generate_pattern_op_partitions",
        "generate_partitions_from_list_of_nodes",
        "generate_grouped_partitions_from_list_of_nodes",
    ],
    "exir.backend.test.backend_with_compiler_demo": ["BackendWithCompilerDemo"],
    "exir.backend.test.backend_with_delegate_mapping_demo": ["BackendWithDelegateMappingDemo"],
    "exir.backend.test.demo_backend": ["DemoBackend"],
    "exir.backend.test.demos.rpc.executor_backend_preprocess": ["ExecutorBackend"],
    "exir.backend.test.op_partitioner_demo": [
        "AddMulPartitionerDemo",
        "AddAttributePartitionerDemo",
        "AllNodesPartitionerDemo",
        "NonDecompTestPartitioner",
    ],
    "exir.capture": ["capture", "CaptureConfig", "EdgeCompileConfig", "ExecutorchBackendConfig"],
    "exir.capture._config": ["CaptureConfig", "EdgeCompileConfig", "ExecutorchBackendConfig"],
    "exir.delegate": ["executorch_call_delegate", "get_lowered_module_name", "is_lowered_module"],
    "exir.dialects._ops": ["ops"],
    "exir.dialects.edge._ops": ["EdgeOpOverload", "EdgeOpOverloadPacket"],
    "exir.dynamic_shape": ["DynamicMemoryPlanningMode"],
    "exir.lowered_backend_module": [
        "LoweredBackendModule",
        "get_lowered_submodules",
        "get_lowered_backend_modules",
    ],
    "exir.pass_manager": ["ExportedProgramPassManager", "PassManager", "PassType"],
    "exir.pass_base": [
        "ExportPass",
        "ExportPassBaseError",
        "ExportedProgramPassBase",
        "ExportedProgramPassResult",
        "NodeMetadata",
        "ProxyValue",
    ],
    "exir.passes": ["SpecPropPass", "MemoryPlanningPass"],
    "exir.passes.legalize_portable_dim_order_pass": ["LegalizePortableDimOrderPass"],
    "exir.memory_planning": ["MemoryPlanningAlgorithmSuite", "greedy", "naive"],
    "exir.passes.memory_planning_pass": ["MemoryPlanningPass"],
    "exir.passes.spec_prop_pass": ["SpecPropPass"],
    "exir.program._fake_program": ["get_fake_program", "update_to_real_program"],
    "exir.program": ["EdgeProgramManager", "ExecutorchProgramManager", "to_edge", "ExirExportedProgram"],
    "exir.program._program": [
        "EdgeProgramManager",
        "ExecutorchProgramManager",
        "ExecutorchProgram",
        "to_edge",
        "to_edge_transform_and_lower",
    ],
    "exir.schema": ["Program", "ExecutionPlan", "DelegateCall"],
    "exir._serialize._named_data_store": ["NamedDataStore", "NamedDataStoreOutput"],
    "extension.pybindings.portable_lib": ["_load_for_executorch", "_load_for_executorch_from_buffer"],
    "runtime": ["Runtime"],
}


def test_every_path_is_tested() -> None:
    assert set(NAMES) == set(MODULE_PATHS)


@pytest.mark.parametrize("path", sorted(MODULE_PATHS))
def test_names_of_a_path_are_found(path) -> None:
    module = importlib.import_module(f"pteron.compat.executorch.{path}")
    for name in NAMES[path]:
        assert getattr(module, name) is not None


@pytest.mark.peer
@pytest.mark.parametrize("path", sorted(MODULE_PATHS.keys() - RUN_HALF))
def test_paths_and_names_are_the_peer_s_own(path) -> None:
    module = pytest.importorskip(f"executorch.{path}", exc_type=ImportError)
    only_in_older_releases = {"MethodCompileSpec"}
    missing = [n for n in NAMES[path] if not hasattr(module, n) and n not in only_in_older_releases]
    assert missing == []


def test_same_objects_as_under_our_own_paths() -> None:
    from pteron.compat.executorch.exir.backend.backend_api import to_backend as theirs
    from pteron.compat.executorch.exir.dialects._ops import ops

    from pteron.exir.backend.backend_api import to_backend
    from pteron.exir.edge.exir_ops import exir_ops

    assert theirs is to_backend
    assert ops is exir_ops


def test_a_function_is_not_hidden_by_the_module_of_its_name() -> None:
    from pteron.compat.executorch.exir import capture
    from pteron.compat.executorch.exir.capture._config import EdgeCompileConfig

    import pteron.exir

    assert capture is pteron.exir.capture
    assert EdgeCompileConfig is pteron.exir.EdgeCompileConfig


def test_unknown_path_and_unknown_name_say_so() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"pteron has no counterpart of this module"):
        importlib.import_module("pteron.compat.executorch.exir.nowhere")
    module = importlib.import_module("pteron.compat.executorch.exir.backend.partitioner")
    with pytest.raises(AttributeError, match="has no name 'Nothing' in pteron"):
        _ = module.Nothing


def test_importing_compat_imports_no_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None; import pteron.compat, pteron.compat.executorch.exir.backend"
    )
    assert output_of(code) == ""


@pytest.mark.peer
def test_install_is_refused_beside_the_real_package() -> None:
    pytest.importorskip("executorch")
    with pytest.raises(RuntimeError, match="the executorch package is installed"):
        install()
    assert not is_installed()


def test_installed_paths_are_ours_until_they_are_uninstalled() -> None:
    code = """
import sys
from pteron import compat
compat.install(replace=True)
compat.install()
assert compat.is_installed()
from executorch.exir.backend.compile_spec_schema import CompileSpec
from pteron.exir.backend.compile_spec import CompileSpec as ours
assert CompileSpec is ours
try:
    import executorch.backends.xnnpack
except ModuleNotFoundError as error:
    assert "no counterpart" in str(error)
else:
    raise SystemExit("found")
compat.uninstall()
assert not compat.is_installed() and "executorch" not in sys.modules
"""
    assert output_of(code) == ""
