"""ExecuTorch's module paths resolve to ours."""

from __future__ import annotations

import importlib
from pathlib import Path
from unittest import mock

import pytest

import pteron
from pteron.compat import install, is_installed
from pteron.compat.module_paths import MODULE_PATHS
from pteron.compat.refused_paths import REFUSED, REFUSED_NAMES
from tests.support.own_interpreter import output_of, run_alone

#: Modules of the table that belong to the run half; everything else needs torch and is there today.
RUN_HALF = {
    "extension.llm.runner",
    "extension.llm.runner._llm_runner",
    "extension.pybindings.portable_lib",
    "runtime",
}

#: What examples import from each path.
NAMES = {
    "devtools": ["BundledProgram", "ETRecord", "Inspector", "generate_etrecord", "parse_etrecord"],
    "devtools.bundled_program": [],
    "devtools.bundled_program.config": ["MethodTestCase", "MethodTestSuite"],
    "devtools.bundled_program.core": ["BundledProgram", "MethodTestSuite"],
    "devtools.bundled_program.schema": ["BundledProgram", "Tensor", "Value"],
    "devtools.bundled_program.schema.bundled_program_schema": ["BundledMethodTestSuite"],
    "devtools.bundled_program.serialize": ["serialize_from_bundled_program_to_flatbuffer"],
    "exir.passes.executorch_prim_ops_registry": [
        "_EXECUTORCH_SYM_OPS",
        "_PYTHON_SYM_OPS_TO_EXECUTORCH_SYM_OPS",
        "is_sym_op",
    ],
    "export": ["ExportRecipe", "ExportSession", "StageType", "export", "recipe_registry"],
    "export.export": ["ExportSession", "export"],
    "export.recipe": ["AOQuantizationConfig", "ExportRecipe", "LoweringRecipe", "Mode", "RecipeType"],
    "export.recipe_provider": ["BackendRecipeProvider"],
    "export.recipe_registry": ["RecipeRegistry", "recipe_registry"],
    "export.stages": ["PipelineArtifact", "QuantizeStage", "Stage", "ToBackendStage"],
    "export.target_recipes": ["get_android_recipe", "get_ios_recipe"],
    "export.types": ["StageType"],
    "export.utils": ["is_supported_platform_for_coreml_lowering"],
    "extension.llm.runner": ["GenerationConfig", "Stats", "TextLLMRunner"],
    "extension.llm.runner._llm_runner": ["GenerationConfig", "Stats", "TextLLMRunner"],
    "exir.tensor_layout": ["TensorLayout"],
    "exir._serialize._serialize": ["serialize_for_executorch"],
    "exir.passes.quant_fusion_pass": ["QuantFusionPass", "quant_fusion_and_const_prop_pass"],
    "exir.passes.quantize_io_pass": ["QuantizeInputs", "QuantizeOutputs", "extract_io_quant_params"],
    "exir.serde": [],
    "exir.serde.export_serialize": ["SerializeError", "deserialize_torch_artifact"],
    "exir.serde.serialize": ["deserialize", "load", "save", "serialize"],
    "exir.verification.arg_validator": ["EdgeOpArgValidator", "RunHigherOrderOperatorError"],
    "devtools.etdump": [],
    "devtools.etrecord": ["ETRecord", "generate_etrecord", "parse_etrecord"],
    "devtools.etrecord._etrecord": ["ETRecord"],
    "devtools.inspector": ["Event", "EventBlock", "Inspector", "PerfData", "TimeScale", "compare_results"],
    "devtools.inspector._inspector": ["Event", "EventBlock", "Inspector", "PerfData"],
    "devtools.inspector._inspector_utils": [
        "DebugHandle",
        "TimeScale",
        "calculate_time_scale_factor",
        "compare_results",
        "find_op_names",
    ],
    "devtools.inspector._intermediate_output_capturer": ["IntermediateOutputCapturer"],
    "devtools.inspector.numerical_comparator": [
        "DebugHandle",
        "IntermediateOutputMapping",
        "L1Comparator",
        "MSEComparator",
        "NumericalComparatorBase",
        "SNRComparator",
    ],
    "devtools.inspector.numerical_comparator.l1_numerical_comparator": ["L1Comparator"],
    "devtools.inspector.numerical_comparator.mse_numerical_comparator": ["MSEComparator"],
    "devtools.inspector.numerical_comparator.numerical_comparator_base": ["NumericalComparatorBase"],
    "devtools.inspector.numerical_comparator.snr_numerical_comparator": ["SNRComparator"],
    "devtools.etdump.schema_flatcc": [
        "ETDumpFlatCC",
        "RunData",
        "ProfileEvent",
        "DebugEvent",
        "Value",
        "ValueType",
    ],
    "devtools.etdump.serialize": ["deserialize_from_etdump_flatcc", "serialize_to_etdump_flatcc"],
    "devtools.backend_debug": ["get_delegation_info", "DelegationBreakdown"],
    "devtools.backend_debug.delegation_info": ["DelegationInfo", "print_delegation_info"],
    "exir": [
        "to_edge",
        "emit_program",
        "EmitterOutput",
        "load",
        "save",
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
    "exir.print_program": ["print_program", "pretty_print", "inspect_node"],
    "exir.backend.backend_api": [
        "to_backend",
        "MethodCompileSpec",
        "MethodProgramsPartitionerSpec",
        "disable_validation",
        "validation_disabled",
        "lower_all_submodules_to_backend",
        "remove_used_metadata",
        "BackendDetails",
        "PreprocessResult",
        "CompileSpec",
        "Partitioner",
        "PartitionResult",
        "LoweredBackendModule",
        "ExportedProgram",
        "InputSpec",
        "OutputSpec",
        "create_exported_program_from_submodule",
        "create_submodule_from_nodes",
        "executorch_call_delegate",
        "get_control_flow_submodules",
        "get_fake_program",
        "get_lowered_module_name",
        "is_buffer",
        "is_identical_graph",
        "is_lifted_tensor_constant",
        "is_param",
        "update_to_real_program",
    ],
    "backends.backend_api": ["to_backend", "MethodCompileSpec"],
    "backends.test.backend_with_compiler_demo": ["BackendWithCompilerDemo"],
    "backends.test.op_partitioner_demo": ["AddMulPartitionerDemo"],
    "exir.graph_module": [
        "bfs_trace_with_node_process",
        "contains_any_call_fn_target_op",
        "get_cond_while_submodules",
        "get_control_flow_submodules",
        "get_scan_submodules",
        "_get_control_flow_submodules",
        "_get_submodule",
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
        "is_same_node",
        "remove_first_quant_and_last_dequant",
        "replace_quantized_partition_with_op",
        "T_QuantPerTensor",
        "T_DQuantPerTensor",
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
    "exir.backend.canonical_partitioners.duplicate_dequant_node_pass": ["DuplicateDequantNodePass"],
    "exir.backend.canonical_partitioners.group_partitioner": ["GroupBasedPartitioner"],
    "exir.backend.canonical_partitioners.pattern_op_partitioner": [
        "generate_pattern_op_partitions",
        "generate_partitions_from_list_of_nodes",
        "generate_grouped_partitions_from_list_of_nodes",
    ],
    "exir.backend.test.backend_with_compiler_demo": ["BackendWithCompilerDemo"],
    "exir.backend.test.backend_with_delegate_mapping_demo": ["BackendWithDelegateMappingDemo", "DummyOp"],
    "exir.backend.test.demo_backend": ["DemoBackend"],
    "exir.backend.test.demos.rpc.executor_backend_preprocess": ["ExecutorBackend"],
    "exir.backend.test.op_partitioner_demo": [
        "AddMulPartitionerDemo",
        "AddAttributePartitionerDemo",
        "AllNodesPartitionerDemo",
        "AddOperatorSupport",
        "AllOperatorSupport",
        "MatmulOperatorSupport",
        "NonDecompTestPartitioner",
        "OpsToNotDecomposeOperatorSupport",
        "edge_ops_non_decomposed",
        "ops_not_to_decompose",
    ],
    "exir.capture": ["capture", "CaptureConfig", "EdgeCompileConfig", "ExecutorchBackendConfig"],
    "exir.capture._config": ["CaptureConfig", "EdgeCompileConfig", "ExecutorchBackendConfig"],
    "exir.delegate": ["executorch_call_delegate", "get_lowered_module_name", "is_lowered_module"],
    "exir.dialects._ops": ["ops", "bind_pattern_to_op"],
    "exir.dialects.edge._ops": ["EdgeOpOverload", "EdgeOpOverloadPacket"],
    "exir.dynamic_shape": ["DynamicMemoryPlanningMode"],
    "exir.lowered_backend_module": [
        "LoweredBackendModule",
        "arrange_graph_outputs",
        "arrange_graph_placeholders",
        "create_exported_program_from_submodule",
        "create_submodule_from_nodes",
        "get_lowered_submodules",
        "get_lowered_backend_modules",
    ],
    "exir.pass_manager": ["ExportedProgramPassManager", "PassManager", "PassType"],
    "exir._program_utils": ["_get_updated_graph_signature"],
    "exir._serialize._cord": ["Cord", "FileBackedData"],
    "exir._serialize._dataclass": ["_DataclassEncoder", "_json_to_dataclass"],
    "exir._serialize._flatbuffer": ["_flatc_compile", "_flatc_decompile"],
    "exir._serialize": ["_PTEFile", "_deserialize_pte_binary"],
    "exir._serialize._ptn": ["ALIASES_ENTRY", "PTG_ENTRY", "SAFETENSORS_ENTRY", "read_ptn", "write_ptn"],
    "exir._serialize._program": ["PTEFile", "deserialize_pte_binary", "_get_extended_header"],
    "exir._serialize._flatbuffer_program": ["_flatbuffer_to_program"],
    "exir._serialize.data_serializer": ["DataEntry", "DataPayload", "DataSerializer"],
    "exir._serialize.padding": ["aligned_size", "pad_to", "padding_required"],
    "exir._warnings": ["ExperimentalWarning", "deprecated", "experimental"],
    "exir.capture._capture": ["patch_forward"],
    "exir.common": ["extract_out_arguments", "get_schema_for_operators", "override_logger"],
    "exir.debug_handle_utils": ["DEBUG_HANDLE_KEY", "get_greatest_ancestor_node_identifier"],
    "exir.dialects.backend._ops": ["_BACKEND_OP_LIB", "BackendOpOverload", "BackendOpOverloadPacket"],
    "exir.dim_order_utils": ["get_dim_order", "get_memory_format", "is_channel_last_dim_order"],
    "exir.emit": ["emit_program", "EmitterOutput"],
    "exir.emit._emit_program": ["emit_program", "EmitterOutput"],
    "exir.error": ["ExportError", "ExportErrorType", "InternalError", "internal_assert"],
    "exir.memory": ["alloc", "free", "view", "AllocSpec"],
    "exir.operator.convert": ["to_out_variant", "unwrap_op_overload", "output_to_aliased_input_map"],
    "exir.operator.util": ["gen_out_variant_schema", "_QUANT_PRIMITIVES"],
    "exir.passes.const_prop_pass": ["ConstPropPass"],
    "exir.passes.constant_prop_pass": ["constant_prop_pass", "get_default_skip_targets_no_quant"],
    "exir.passes.convert_constant_dim_order_pass": ["convert_constant_dim_order_pass"],
    "exir.passes.cse_pass": ["CSEPass"],
    "exir.passes.debug_handle_generator_pass": [
        "DebugHandleGeneratorPass",
        "generate_missing_debug_handles",
    ],
    "exir.passes.dim_order_ops_registry": ["DimOrderOpsMap", "MemoryFormatOpsMap"],
    "exir.passes.external_constants_pass": [
        "delegate_external_constants_pass_unlifted",
        "external_constants_pass",
        "external_mutable_weights_pass",
        "is_param_node",
    ],
    "exir.passes.to_device_pass": ["ToDevicePass"],
    "exir.emit._emitter": ["_DelegateDebugIdentifierMap", "dim_order_from_stride"],
    "exir.passes.fold_redundant_qdq_pass": ["FoldRedundantDequantizeQuantizePass"],
    "exir.passes.init_mutable_pass": ["InitializedMutableBufferPass"],
    "exir.passes.insert_write_back_for_buffers_pass": ["insert_write_back_for_buffers_pass"],
    "exir.passes.memory_format_ops_pass": ["DimOrderOpsRevertPass", "MemoryFormatOpsPass"],
    "exir.passes.normalize_transpose_pass": ["NormalizeTransposePass"],
    "exir.passes.normalize_view_copy_base_pass": ["NormalizeViewCopyBasePass"],
    "exir.passes.pass_registry": ["PassRegistry"],
    "exir.passes._device_copy_ops_registry": ["lib"],
    "exir.passes.propagate_device_config": ["PropagateDeviceConfig"],
    "exir.passes.propagate_device_pass": [
        "PropagateDeviceConfig",
        "PropagateDevicePass",
        "TARGET_DEVICE_COMPILE_SPEC_KEY",
        "_get_target_device_from_compile_specs",
        "_parse_device_spec_value",
    ],
    "exir.passes.prune_empty_tensors_pass": ["PruneEmptyTensorsPass"],
    "exir.passes.reinplace": ["DEFAULT_INPLACEABLE_OPS", "reinplace_pass"],
    "exir.passes.replace_view_copy_with_view_pass": ["ReplaceViewCopyWithViewPass"],
    "exir.tracer": ["Value", "_default_decomposition_table"],
    "exir.passes.remove_graph_asserts_pass": ["RemoveGraphAssertsPass"],
    "exir.passes.remove_mixed_type_operators": ["RemoveMixedTypeOperators"],
    "exir.passes.remove_noop_pass": ["RemoveNoopPass", "RemoveToCopyPass", "eliminate_dq_q"],
    "exir.passes.remove_unused_parameters_pass": ["remove_unused_parameters_pass"],
    "exir.passes.replace_aten_with_edge_pass": ["OpReplacePass", "aten_to_edge"],
    "exir.passes.replace_edge_with_backend_pass": ["EdgeToBackendOpsPass"],
    "exir.passes.replace_sym_size_op_pass": ["ReplaceSymSizeOpPass"],
    "exir.passes.scalar_to_tensor_pass": ["ScalarToTensorPass"],
    "exir.passes.sym_shape_eval_pass": ["ConstraintBasedSymShapeEvalPass", "HintBasedSymShapeEvalPass"],
    "exir.passes.sym_to_tensor_pass": ["SymToTensorPass"],
    "exir.scalar_type": ["ScalarType"],
    "exir.sym_util": ["eval_expr", "eval_shape", "eval_shape_upper_bound", "eval_upper_bound"],
    "exir.tensor": ["TensorSpec", "make_allocation_info", "num_bytes_from_shape_and_dtype"],
    "exir.verification.verifier": ["EXIREdgeDialectVerifier"],
    "exir.pass_base": [
        "Argument",
        "NodeMetadataValue",
        "PROTECTED_KEYS",
        "PassType",
        "map_args",
        "ExportPass",
        "ExportPassBaseError",
        "ExportedProgramPassBase",
        "ExportedProgramPassResult",
        "NodeMetadata",
        "ProxyValue",
    ],
    "exir.passes": [
        "SpecPropPass",
        "MemoryPlanningPass",
        "ToOutVarPass",
        "DebugPass",
        "dead_code_elimination_pass",
        "make_alloc_node",
        "propagate_dynamic_shape",
    ],
    "exir.passes.legalize_portable_dim_order_pass": ["LegalizePortableDimOrderPass"],
    "exir.banked_memory_planning": ["Bank", "BankedGreedy", "TargetMemoryMap", "banked_memory_planning_pass"],
    "exir.memory_planning": [
        "MemoryAlgoResult",
        "MemoryPlanningAlgorithmSuite",
        "SharedObject",
        "Verifier",
        "apply_algo",
        "collect_specs_from_nodes",
        "filter_nodes",
        "get_graph_input_tensors",
        "get_graph_output_tensors",
        "get_node_tensor_specs",
        "greedy",
        "naive",
        "pick_shared_obj",
        "update_all_tensors_lifetime",
        "update_tensor_lifetime",
    ],
    "exir.passes.memory_planning_pass": ["MemoryPlanningPass"],
    "exir.passes.spec_prop_pass": ["SpecPropPass"],
    "exir.program._fake_program": ["get_fake_program", "update_to_real_program"],
    "exir.program": ["EdgeProgramManager", "ExecutorchProgramManager", "to_edge", "ExirExportedProgram"],
    "exir.program._program": [
        "_copy_module",
        "_gen_edge_manager_for_partitioners",
        "_transform",
        "lift_constant_tensor_pass",
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


def test_a_package_of_ours_is_no_name_of_theirs() -> None:
    from pteron.compat.executorch.exir import memory

    from pteron.exir.edge.memory_nodes import view

    assert memory.view is view
    with pytest.raises(ImportError, match="cannot import name 'serialize'"):
        from pteron.compat.executorch.exir import serialize  # noqa: F401


def test_refused_modules_say_why() -> None:
    for path, reason in REFUSED.items():
        with pytest.raises(ModuleNotFoundError) as caught:
            importlib.import_module(f"pteron.compat.executorch.{path}")
        assert reason in str(caught.value)
    for path, names in REFUSED_NAMES.items():
        module = importlib.import_module(f"pteron.compat.executorch.{path}")
        for name, reason in names.items():
            with pytest.raises(ImportError) as error:
                getattr(module, name)
            assert reason in str(error.value)


@pytest.mark.peer
def test_install_is_refused_once_modules_of_the_real_package_are_imported() -> None:
    pytest.importorskip("executorch.exir.error")
    with pytest.raises(RuntimeError, match=r"executorch\..* is imported already"):
        install()
    assert not is_installed()


def test_installed_paths_are_ours_until_they_are_uninstalled() -> None:
    code = """
import sys
from pteron import compat
compat.install()
compat.install()
assert compat.is_installed()
from executorch.exir.backend.compile_spec_schema import CompileSpec
from pteron.exir.backend.compile_spec import CompileSpec as ours
assert CompileSpec is ours
try:
    import executorch.exir.nowhere
except ModuleNotFoundError as error:
    assert "no counterpart" in str(error)
else:
    raise SystemExit("found")
compat.uninstall()
assert not compat.is_installed() and "executorch" not in sys.modules
"""
    assert output_of(code) == ""


def test_constants_are_kept_where_install_is_asked_to() -> None:
    code = """
import torch
from pteron import compat
class ShiftedWeight(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    def forward(self, x):
        return x + self.weight.sin()
program = torch.export.export(ShiftedWeight(), (torch.ones(2),))
def operators():
    from executorch.exir import to_edge
    plan = to_edge(program).to_executorch().executorch_program.execution_plan[0]
    return [operator.name for operator in plan.operators]
compat.install()
assert operators() == ["aten::add"], operators()
compat.install(keep_constants=True)
compat.install()
assert operators() == ["aten::sin", "aten::add"], operators()
compat.uninstall()
compat.install()
assert operators() == ["aten::add"], operators()
"""
    assert output_of(code) == ""


@pytest.mark.peer
def test_what_is_not_replaced_comes_from_the_wheel_and_sees_ours() -> None:
    code = """
from pteron import compat
compat.install()
import executorch.backends.transforms.remove_getitem_op as theirs
from pteron.exir.passes.export_pass import ExportPass
assert "site-packages" in theirs.__file__
assert theirs.ExportPass is ExportPass
"""
    run_alone(code)


def test_without_the_wheel_the_paths_are_there_and_others_say_so(tmp_path: Path) -> None:
    # Nothing but pteron, wherever it is installed.
    (tmp_path / "pteron").symlink_to(Path(pteron.__file__).parent, target_is_directory=True)
    code = f"""
import sys
sys.path_importer_cache.clear()
sys.path[:] = [{str(tmp_path)!r}, *(each for each in sys.path if "site-packages" not in each)]
from pteron import compat
compat.install()
from executorch.exir.backend import compile_spec_schema
try:
    import executorch.backends.xnnpack
except ModuleNotFoundError as error:
    assert "no executorch wheel" in str(error), error
else:
    raise SystemExit("found")
"""
    assert output_of(code) == ""


def test_an_import_alone_makes_operators_and_backends_known() -> None:
    code = """
from pteron import compat
compat.install()
import executorch.exir
import executorch.exir.backend.test.demo_backend
import torch
torch.ops.quantized_decomposed.dequantize_per_tensor.default
from pteron.exir.backend.backend_details import find_backend
assert find_backend("DemoBackend").__name__ == "DemoBackend"
"""
    assert output_of(code) == ""


def test_a_patched_name_is_patched_where_it_is_used() -> None:
    from pteron.compat.executorch.exir.backend import backend_api as theirs

    from pteron.exir.backend import backend_api as ours

    original = ours.to_backend
    with mock.patch.object(theirs, "to_backend") as patched:
        assert ours.to_backend is theirs.to_backend is patched
    assert ours.to_backend is theirs.to_backend is original
