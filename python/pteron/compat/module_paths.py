"""The table: ExecuTorch's module path, and where its names are here.

A value lists our modules in the order in which a name is looked for. `(module, {theirs: ours})` renames: only
the names listed there are taken from that module, under the name on the left.
"""

from __future__ import annotations

from collections.abc import Mapping

Source = str | tuple[str, Mapping[str, str]]

_BACKEND = "pteron.exir.backend"
_CANONICAL = f"{_BACKEND}.canonical_partitioners"
_DEMO = "pteron.backends.demo"
_RECIPES = "pteron.exir.recipes"
_BUNDLED = "pteron.devtools.bundled_program"
_BUNDLES = "pteron.compat.bundled_program"
_EXIR = "pteron.compat.exir"
_PLANNING = f"{_EXIR}.memory_planning"
_PASSES = f"{_EXIR}.passes"
_DIM_ORDER_FROM_STRIDE = (f"{_EXIR}.tensor", {"dim_order_from_stride": "dim_order_from_stride"})
_LEGALIZE = "pteron.exir.passes.legalize_portable_dim_order"

_PROGRAM: tuple[Source, ...] = (
    "pteron.exir.program",
    "pteron.exir.to_edge_transform_and_lower",
    "pteron.exir.executorch_program_manager",
    ("pteron.exir.capture", {"ExirExportedProgram": "CapturedProgram"}),
    ("pteron.exir.executorch_program_manager", {"ExecutorchProgram": "ExecutorchProgramManager"}),
)
_CONFIGS: tuple[Source, ...] = (
    ("pteron.exir.capture", {"CaptureConfig": "CaptureConfig"}),
    ("pteron.exir.config.compile_config", {"EdgeCompileConfig": "EdgeCompileConfig"}),
    ("pteron.exir.config.backend_config", {"ExecutorchBackendConfig": "ExecutorchBackendConfig"}),
)

_BACKEND_API: tuple[Source, ...] = (
    f"{_BACKEND}.backend_api",
    # Names that ExecuTorch's module imports, and that others take from there.
    f"{_BACKEND}.backend_details",
    f"{_BACKEND}.lowered_backend_module",
    f"{_BACKEND}.cut_by_nodes",
    (
        f"{_BACKEND}.constant_duplication",
        {"_maybe_duplicate_constant_nodes": "duplicate_constants_of_tag"},
    ),
    (f"{_BACKEND}.cut_by_nodes", {"_get_node_list_with_same_tag": "nodes_with_tag"}),
    f"{_BACKEND}.program_copy",
    f"{_BACKEND}.graph_identity",
    f"{_BACKEND}.partitioner",
    "pteron.exir.edge.body_lists",
    ("torch.export.graph_signature", {"InputSpec": "InputSpec", "OutputSpec": "OutputSpec"}),
    (
        "torch._export.utils",
        {name: name for name in ("is_buffer", "is_lifted_tensor_constant", "is_param")},
    ),
)
_COMPILER_DEMO: tuple[Source, ...] = (f"{_DEMO}.compiler_demo_backend",)
_OP_PARTITIONERS: tuple[Source, ...] = (
    f"{_DEMO}.op_partitioners",
    (
        f"{_DEMO}.op_partitioners",
        {
            "ops_not_to_decompose": "OPS_TO_NOT_DECOMPOSE",
            "edge_ops_non_decomposed": "EDGE_OPS_NOT_DECOMPOSED",
        },
    ),
)

_ETRECORD: tuple[Source, ...] = ("pteron.devtools.etrecord",)
_INSPECTOR: tuple[Source, ...] = ("pteron.devtools.inspector",)
_COMPARATORS: tuple[Source, ...] = ("pteron.devtools.inspector.comparators",)

MODULE_PATHS: dict[str, tuple[Source, ...]] = {
    "devtools": (
        f"{_BUNDLES}.core",
        "pteron.devtools.bundled_program",
        ("pteron.devtools.inspector", {"Inspector": "Inspector"}),
        (
            "pteron.devtools.etrecord",
            {name: name for name in ("ETRecord", "generate_etrecord", "parse_etrecord")},
        ),
    ),
    "devtools.bundled_program": ("pteron.devtools.bundled_program",),
    "devtools.bundled_program.config": (
        f"{_BUNDLED}.method_test_suite",
        ("typing", dict.fromkeys(("DataContainer", "MethodInputType", "MethodOutputType"), "Any")),
    ),
    "devtools.bundled_program.core": (f"{_BUNDLES}.core", f"{_BUNDLED}.method_test_suite"),
    "devtools.bundled_program.schema": (f"{_BUNDLES}.schema",),
    "devtools.bundled_program.schema.bundled_program_schema": (f"{_BUNDLES}.schema",),
    "devtools.bundled_program.serialize": (f"{_BUNDLED}.serialize_bundled_program", f"{_BUNDLES}.serialize"),
    "devtools.etdump": (),
    "devtools.etdump.schema_flatcc": (
        "pteron.devtools.etdump.schema",
        ("pteron.devtools.etdump.schema", {"ETDumpFlatCC": "ETDump"}),
        "pteron.compat.etdump",
        ("pteron.exir.schema", {"ScalarType": "ScalarType"}),
    ),
    "devtools.etdump.serialize": ("pteron.compat.etdump",),
    "devtools.etrecord": _ETRECORD,
    "devtools.etrecord._etrecord": _ETRECORD,
    "devtools.inspector": _INSPECTOR,
    "devtools.inspector._inspector": _INSPECTOR,
    "devtools.inspector._inspector_utils": (
        "pteron.devtools.inspector.time_scale",
        "pteron.devtools.inspector.comparators",
        ("pteron.devtools.inspector.compare_results", {"compare_results": "compare_results"}),
    ),
    "devtools.inspector._intermediate_output_capturer": ("pteron.devtools.inspector.intermediate_outputs",),
    "devtools.inspector.numerical_comparator": _COMPARATORS,
    "devtools.inspector.numerical_comparator.l1_numerical_comparator": _COMPARATORS,
    "devtools.inspector.numerical_comparator.mse_numerical_comparator": _COMPARATORS,
    "devtools.inspector.numerical_comparator.numerical_comparator_base": _COMPARATORS,
    "devtools.inspector.numerical_comparator.snr_numerical_comparator": _COMPARATORS,
    "devtools.backend_debug": (f"{_BACKEND}.delegation_info",),
    "devtools.backend_debug.delegation_info": (f"{_BACKEND}.delegation_info",),
    "exir": (
        "pteron.exir",
        ("pteron.exir.capture", {"capture": "capture", "CaptureConfig": "CaptureConfig"}),
        ("pteron.exir.capture", {"ExirExportedProgram": "CapturedProgram"}),
        ("pteron.exir.executorch_program_manager", {"ExecutorchProgram": "ExecutorchProgramManager"}),
        (
            "torch.export",
            {"ExportedProgram": "ExportedProgram", "ExportGraphSignature": "ExportGraphSignature"},
        ),
        (f"{_EXIR}.emit", {"EmitterOutput": "EmitterOutput", "emit_program": "emit_program"}),
        (f"{_EXIR}.serde.program_files", {"load": "load", "save": "save"}),
        ("typing", {"Value": "Any"}),
    ),
    # Paths of the first published note on delegation.
    "backends.backend_api": _BACKEND_API,
    "backends.test.backend_with_compiler_demo": _COMPILER_DEMO,
    "backends.test.op_partitioner_demo": _OP_PARTITIONERS,
    "exir.backend.backend_api": _BACKEND_API,
    "exir.backend.backend_details": (f"{_BACKEND}.backend_details",),
    "exir.backend.compile_spec_schema": (f"{_BACKEND}.compile_spec",),
    "exir.backend.partitioner": (f"{_BACKEND}.partitioner",),
    "exir.backend.operator_support": (f"{_BACKEND}.operator_support",),
    "exir.backend.utils": (
        f"{_BACKEND}.constant_tagging",
        f"{_BACKEND}.delegate_mapping_builder",
        f"{_BACKEND}.delegated_graph",
        f"{_BACKEND}.graph_identity",
        f"{_BACKEND}.quantized_partitions",
        (
            f"{_BACKEND}.partition_report",
            {"WhyNoPartition": "WhyNoPartition", "WhyNoPartitionReporter": "WhyNoPartitionReporter"},
        ),
        (
            f"{_BACKEND}.constant_duplication",
            {
                "duplicate_constant_node": "duplicate_constant_node",
                "_maybe_duplicate_constant_nodes": "duplicate_constants_of_tag",
            },
        ),
        (f"{_BACKEND}.delegate_call", {"executorch_call_delegate": "executorch_call_delegate"}),
    ),
    "exir.backend.canonical_partitioners.all_node_partitioner": (f"{_CANONICAL}.all_node_partitioner",),
    "exir.backend.canonical_partitioners.config_partitioner": (f"{_CANONICAL}.config_partitioner",),
    "exir.backend.canonical_partitioners.duplicate_constant_node_pass": (f"{_BACKEND}.constant_duplication",),
    "exir.backend.canonical_partitioners.duplicate_dequant_node_pass": (
        "pteron.exir.passes.duplicate_dequantize",
    ),
    "exir.backend.canonical_partitioners.group_partitioner": (f"{_CANONICAL}.group_partitioner",),
    "exir.backend.canonical_partitioners.pattern_op_partitioner": (f"{_CANONICAL}.pattern_op_partitioner",),
    "exir.backend.test.backend_with_compiler_demo": _COMPILER_DEMO,
    "exir.backend.test.backend_with_delegate_mapping_demo": (f"{_DEMO}.delegate_mapping_demo_backend",),
    "exir.backend.test.demo_backend": (f"{_DEMO}.demo_backend",),
    "exir.backend.test.demos.rpc.executor_backend_preprocess": (f"{_DEMO}.executor_backend",),
    "exir.backend.test.op_partitioner_demo": _OP_PARTITIONERS,
    "exir.capture._capture": ("pteron.compat.exir.patch_forward",),
    "exir.capture": (("pteron.exir.capture", {"capture": "capture"}), *_CONFIGS),
    "exir.capture._config": _CONFIGS,
    "exir.delegate": (f"{_BACKEND}.delegate_call",),
    "exir._serialize._cord": (f"{_EXIR}.cord",),
    "exir._serialize._dataclass": (f"{_EXIR}.dataclass_json",),
    "exir._serialize": (
        (
            f"{_EXIR}.pte_file",
            {
                "_PTEFile": "PTEFile",
                "_deserialize_pte_binary": "deserialize_pte_binary",
                "_serialize_pte_binary": "serialize_pte_binary",
            },
        ),
    ),
    "exir._serialize._ptn": (f"{_EXIR}.ptn",),
    "exir._serialize._program": (
        f"{_EXIR}.pte_file",
        f"{_EXIR}.cord",
        (f"{_EXIR}.flatbuffer", {"_insert_flatbuffer_header": "_insert_flatbuffer_header"}),
    ),
    "exir._serialize._flatbuffer_program": (f"{_EXIR}.pte_file",),
    "exir._serialize._flatbuffer": (f"{_EXIR}.flatbuffer",),
    "exir._serialize._serialize": (f"{_EXIR}.serialize_program",),
    "exir._serialize.data_serializer": (f"{_EXIR}.data_serializer",),
    "exir._serialize.padding": (f"{_EXIR}.padding",),
    "exir._warnings": (f"{_EXIR}.warnings",),
    "exir.common": (f"{_EXIR}.common",),
    "exir.debug_handle_utils": (f"{_EXIR}.debug_handle_utils",),
    "exir.dialects._ops": (
        ("pteron.exir.edge.exir_ops", {"ops": "exir_ops"}),
        "pteron.exir.edge.exir_ops",
        (
            "pteron.exir.edge.backend_ops",
            {"bind_pattern_to_op": "bind_pattern_to_op", "_BACKEND_OP_LIB": "BACKEND_LIBRARIES"},
        ),
    ),
    "exir.dialects.backend._ops": (
        "pteron.exir.edge.backend_ops",
        ("pteron.exir.edge.backend_ops", {"_BACKEND_OP_LIB": "BACKEND_LIBRARIES"}),
    ),
    "exir.dim_order_utils": (f"{_EXIR}.dim_order_utils",),
    "exir.error": (f"{_EXIR}.error",),
    "exir.memory": (f"{_EXIR}.memory",),
    "exir.scalar_type": (("pteron.exir.schema", {"ScalarType": "ScalarType"}),),
    "exir.sym_util": (f"{_EXIR}.sym_util",),
    "exir.tensor": (f"{_EXIR}.tensor",),
    "exir.dialects.edge._ops": ("pteron.exir.edge.edge_op_overload",),
    "exir.dynamic_shape": (
        ("pteron.exir.config.backend_config", {"DynamicMemoryPlanningMode": "DynamicMemoryPlanningMode"}),
    ),
    "exir.graph_module": (
        "pteron.exir.edge.body_lists",
        (
            "pteron.exir.edge.body_lists",
            {"_get_submodule": "get_submodule", "_get_control_flow_submodules": "bodies_at"},
        ),
    ),
    "exir.lowered_backend_module": (
        f"{_BACKEND}.lowered_backend_module",
        f"{_BACKEND}.cut_by_nodes",
    ),
    "exir.banked_memory_planning": (f"{_PLANNING}.banked",),
    "exir.memory_planning": (
        f"{_PLANNING}.algorithms",
        f"{_PLANNING}.graph_specs",
        f"{_PLANNING}.verifier",
        f"{_PLANNING}.apply",
    ),
    "exir.operator.convert": (f"{_EXIR}.operator",),
    "exir.operator.util": (f"{_EXIR}.operator",),
    "exir.pass_base": (
        "pteron.exir.passes.export_pass",
        "pteron.exir.passes.exported_program_pass",
        "pteron.exir.passes.proxy_value",
        f"{_EXIR}.pass_base",
    ),
    "exir.pass_manager": ("pteron.exir.passes.pass_manager",),
    "exir.passes": (
        f"{_PASSES}.clean_up",
        f"{_PASSES}.rewrite",
        f"{_PASSES}.dim_order",
        f"{_PASSES}.specs",
        f"{_PASSES}.constants",
        f"{_PASSES}.out_variants",
        f"{_PASSES}.debug",
        (
            f"{_PASSES}.quant_fusion",
            {name: name for name in ("QuantFusionPass", "quant_fusion_and_const_prop_pass")},
        ),
        (
            f"{_PASSES}.whole_program",
            {"insert_write_back_for_buffers_pass": "insert_write_back_for_buffers_pass"},
        ),
        (_LEGALIZE, {"LegalizePortableDimOrderPass": "LegalizePortableDimOrderPass"}),
        (f"{_PLANNING}.planning_pass", {"MemoryPlanningPass": "MemoryPlanningPass"}),
        (f"{_PASSES}.to_device", {"ToDevicePass": "ToDevicePass"}),
    ),
    "exir.passes.to_device_pass": (f"{_PASSES}.to_device",),
    "exir.passes.const_prop_pass": (f"{_PASSES}.constants",),
    "exir.passes.constant_prop_pass": (f"{_PASSES}.constants",),
    "exir.passes.convert_constant_dim_order_pass": (f"{_PASSES}.whole_program",),
    "exir.passes.cse_pass": (f"{_PASSES}.constants",),
    "exir.passes.debug_handle_generator_pass": (f"{_PASSES}.debug",),
    "exir.passes.dim_order_ops_registry": (f"{_PASSES}.dim_order",),
    "exir.passes.executorch_prim_ops_registry": (f"{_PASSES}.symbolic_ops",),
    "exir.passes.external_constants_pass": (f"{_PASSES}.external_constants",),
    "exir.passes.fold_redundant_qdq_pass": (f"{_PASSES}.clean_up",),
    "exir.passes.init_mutable_pass": (f"{_PASSES}.specs",),
    "exir.passes.insert_write_back_for_buffers_pass": (f"{_PASSES}.whole_program",),
    "exir.passes.legalize_portable_dim_order_pass": (_LEGALIZE,),
    "exir.passes.memory_format_ops_pass": (f"{_PASSES}.dim_order",),
    "exir.passes.memory_planning_pass": (f"{_PLANNING}.planning_pass",),
    "exir.passes.normalize_transpose_pass": (f"{_PASSES}.rewrite",),
    "exir.passes.normalize_view_copy_base_pass": (f"{_PASSES}.clean_up",),
    "exir.passes.pass_registry": (f"{_PASSES}.debug",),
    "exir.passes.propagate_device_config": ("pteron.exir.passes.propagate_device_config",),
    "exir.passes.propagate_device_pass": (
        "pteron.exir.passes.propagate_device_config",
        "pteron.exir.passes.propagate_device_pass",
        f"{_PASSES}.devices",
    ),
    "exir.passes._device_copy_ops_registry": (f"{_PASSES}.device_copy_ops",),
    "exir.passes.prune_empty_tensors_pass": (f"{_PASSES}.clean_up",),
    "exir.passes.quant_fusion_pass": (
        f"{_PASSES}.quant_fusion",
        (f"{_PASSES}.constants", {"constant_prop_pass": "constant_prop_pass"}),
    ),
    "exir.passes.quantize_io_pass": (f"{_PASSES}.quantize_io",),
    "exir.passes.reinplace": (f"{_PASSES}.reinplace",),
    "exir.passes.remove_graph_asserts_pass": (f"{_PASSES}.clean_up",),
    "exir.passes.remove_mixed_type_operators": (f"{_PASSES}.rewrite",),
    "exir.passes.remove_noop_pass": (f"{_PASSES}.clean_up",),
    "exir.passes.remove_unused_parameters_pass": (f"{_PASSES}.clean_up",),
    "exir.passes.replace_aten_with_edge_pass": (
        f"{_PASSES}.rewrite",
        ("pteron.exir.edge.edge_op_overload", {"aten_to_edge": "edge_op_of"}),
    ),
    "exir.passes.replace_edge_with_backend_pass": (f"{_PASSES}.rewrite",),
    "exir.passes.replace_sym_size_op_pass": (f"{_PASSES}.rewrite",),
    "exir.passes.replace_view_copy_with_view_pass": (f"{_PASSES}.specs", _DIM_ORDER_FROM_STRIDE),
    "exir.passes.scalar_to_tensor_pass": (f"{_PASSES}.rewrite",),
    "exir.passes.spec_prop_pass": (
        f"{_PASSES}.specs",
        ("pteron.exir.passes.spec_prop_pass", {"make_spec": "spec_of"}),
    ),
    "exir.passes.sym_shape_eval_pass": (
        f"{_PASSES}.specs",
        (f"{_EXIR}.sym_util", {"eval_upper_bound": "eval_upper_bound"}),
    ),
    "exir.passes.sym_to_tensor_pass": (f"{_PASSES}.rewrite",),
    "exir.print_program": ("pteron.compat.print_program",),
    "exir.program._fake_program": (
        (
            f"{_BACKEND}.program_copy",
            {
                "get_fake_program": "get_fake_program",
                "update_to_real_program": "update_to_real_program",
            },
        ),
    ),
    "exir._program_utils": (f"{_EXIR}.program_internals",),
    "exir.emit": (f"{_EXIR}.emit",),
    "exir.emit._emit_program": (f"{_EXIR}.emit",),
    "exir.emit._emitter": (f"{_EXIR}.emitter", _DIM_ORDER_FROM_STRIDE),
    "exir.program": _PROGRAM,
    "exir.program._program": (
        *_PROGRAM,
        f"{_EXIR}.program_internals",
        (
            f"{_BACKEND}.delegated_graph",
            {
                "collect_named_data_store_from_exported_program": (
                    "collect_named_data_store_from_exported_program"
                )
            },
        ),
    ),
    "exir.tracer": (f"{_EXIR}.decomposition_table", ("typing", {"Value": "Any"})),
    "exir.verification.arg_validator": (f"{_EXIR}.arg_validator",),
    "exir.verification.verifier": (
        f"{_EXIR}.verifier",
        (f"{_PASSES}.symbolic_ops", {"_EXECUTORCH_SYM_OPS": "_EXECUTORCH_SYM_OPS"}),
    ),
    "exir.schema": ("pteron.exir.schema",),
    "exir.serde": (),
    "exir.serde.export_serialize": (
        f"{_EXIR}.serde.torch_artifact",
        ("torch._export.serde.serialize", {"SerializedArtifact": "SerializedArtifact"}),
    ),
    "exir.serde.serialize": (
        f"{_EXIR}.serde.program_files",
        ("torch._export.serde.serialize", {"SerializeError": "SerializeError"}),
    ),
    "exir.tensor_layout": (
        ("pteron.exir.schema", {"TensorLayout": "TensorLayout"}),
        _DIM_ORDER_FROM_STRIDE,
    ),
    "exir._serialize._named_data_store": (f"{_BACKEND}.named_data_store",),
    "export": (_RECIPES, (f"{_RECIPES}.export_session", {"export": "export"})),
    "export.export": (f"{_RECIPES}.export_session",),
    "export.recipe": (f"{_RECIPES}.recipe_parts", f"{_RECIPES}.export_recipe"),
    "export.recipe_provider": (f"{_RECIPES}.recipe_registry",),
    "export.recipe_registry": (f"{_RECIPES}.recipe_registry",),
    "export.stages": (f"{_RECIPES}.stages",),
    "export.target_recipes": (f"{_RECIPES}.target_recipes",),
    "export.types": ((f"{_RECIPES}.recipe_parts", {"StageType": "StageType"}),),
    "export.utils": (f"{_RECIPES}.target_recipes",),
    "extension.llm.runner": ("pteron.compat.llm_runner",),
    "extension.llm.runner._llm_runner": ("pteron.compat.llm_runner",),
    "extension.pybindings.portable_lib": ("pteron.compat.portable_lib",),
    "runtime": ("pteron.runtime",),
}

#: Path → the module that its import imports too, for what that does: it makes operators known to PyTorch, or
#: a backend known to `to_backend`.
IMPORTED_FOR_EFFECT = {
    "exir": "pteron.exir.edge.exir_ops",
    "exir.passes._device_copy_ops_registry": f"{_PASSES}.device_copy_ops",
    "exir.passes.propagate_device_pass": f"{_PASSES}.device_copy_ops",
    "backends.test.backend_with_compiler_demo": f"{_DEMO}.compiler_demo_backend",
    "exir.backend.test.backend_with_compiler_demo": f"{_DEMO}.compiler_demo_backend",
    "exir.backend.test.backend_with_delegate_mapping_demo": f"{_DEMO}.delegate_mapping_demo_backend",
    "exir.backend.test.demo_backend": f"{_DEMO}.demo_backend",
    "exir.backend.test.demos.rpc.executor_backend_preprocess": f"{_DEMO}.executor_backend",
}
