"""All passes between a captured program and one with a memory plan: each stage in order, as data.

`run_stage` walks the lists; `docs/passes.md` is written from them (`make passes`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from torch._ops import OpOverload
from torch.export import ExportedProgram

from pteron.exir.config.backend_config import ExecutorchBackendConfig
from pteron.exir.config.compile_config import EdgeCompileConfig
from pteron.exir.decompose.core_decompositions import decompose_to_core
from pteron.exir.decompose.decompose_leftovers import decompose_leftovers
from pteron.exir.decompose.preserved_operators import (
    PreservedOperators,
    hide_preserved_operators,
    show_preserved_operators,
)
from pteron.exir.memory.memory_planning_pass import plan_memory
from pteron.exir.passes.assign_debug_handles import assign_debug_handles
from pteron.exir.passes.eliminate_dead_code import eliminate_dead_code
from pteron.exir.passes.give_branches_fresh_results import give_branches_fresh_results
from pteron.exir.passes.give_calls_own_bodies import give_calls_own_bodies
from pteron.exir.passes.in_edge_dialect import in_edge_dialect
from pteron.exir.passes.insert_write_backs import insert_write_backs
from pteron.exir.passes.keep_operands_for_fusion import keep_operands_for_fusion
from pteron.exir.passes.legalize_portable_dim_order import legalize_portable_dim_order
from pteron.exir.passes.lift_body_constants import lift_body_constants
from pteron.exir.passes.mark_shared_state import mark_shared_state
from pteron.exir.passes.normalize_layouts import normalize_layouts
from pteron.exir.passes.optimizations import optimize_programs
from pteron.exir.passes.pass_list import Condition, Row, Scope, Stage
from pteron.exir.passes.promote_mixed_dtypes import promote_mixed_dtypes
from pteron.exir.passes.propagate_device_pass import propagate_devices
from pteron.exir.passes.refresh_values import refresh_values
from pteron.exir.passes.remove_assertions import remove_assertions
from pteron.exir.passes.remove_noops import remove_noops, remove_stated_noops
from pteron.exir.passes.remove_requantization import remove_requantization
from pteron.exir.passes.replace_view_copies import replace_view_copies
from pteron.exir.passes.replace_views_with_copies import replace_views_with_copies
from pteron.exir.passes.replace_with_edge_ops import replace_with_edge_ops
from pteron.exir.passes.reuse_in_place import reuse_in_place
from pteron.exir.passes.run_graph_passes import copy_program, run_graph_passes
from pteron.exir.passes.scalar_to_tensor import scalar_to_tensor
from pteron.exir.passes.separate_loop_values import separate_loop_values
from pteron.exir.passes.separate_updates import separate_updates
from pteron.exir.passes.settle_constants import settle_constants
from pteron.exir.passes.spec_prop_pass import state_specs
from pteron.exir.passes.spell_out_copies import spell_out_copies
from pteron.exir.passes.spell_out_symbolic_ops import spell_out_symbolic_ops
from pteron.exir.passes.state_dim_order import state_dim_order
from pteron.exir.passes.store_float8_as_bfloat16 import store_float8_as_bfloat16
from pteron.exir.passes.store_quantized_weights import store_quantized_weights
from pteron.exir.passes.sym_to_tensor import sym_to_tensor
from pteron.exir.passes.sync_output_names import sync_output_names
from pteron.exir.passes.tag_trained_weights import tag_trained_weights
from pteron.exir.passes.to_out_variants import to_out_variants
from pteron.exir.target.kernel_lists import kernel_names


@dataclass(frozen=True)
class ToEdge:
    """What the stages of `to_edge` are asked for. `whole`: operators that stay whole at every call;
    `preserved`: what backends want whole.
    """

    config: EdgeCompileConfig
    whole: frozenset[OpOverload]
    preserved: PreservedOperators


@dataclass(frozen=True)
class ToExecutorch:
    """What the stages of `to_executorch` are asked for.

    `edge_config`: what the programs were brought into the edge dialect with; `to_edge` brings a program
    there: called with (program, config, method=...), it keeps whole what that config says.
    """

    config: ExecutorchBackendConfig
    edge_config: EdgeCompileConfig
    to_edge: Callable[..., ExportedProgram]

    @cached_property
    def kernels(self) -> frozenset[str]:
        """Names of what the target can run."""
        return kernel_names(self.config.kernels)


_STATES_DIM_ORDER: Condition[ToEdge] = Condition(
    "not with `EdgeCompileConfig(_skip_dim_order=True)`", lambda to: not to.config._skip_dim_order
)
_REMOVES_NOOPS: Condition[ToEdge] = Condition(
    "not with `EdgeCompileConfig(keep_noops=True)`", lambda to: not to.config.keep_noops
)
_BACKENDS_CHOOSE_CALLS: Condition[ToEdge] = Condition(
    "a filter of `Partitioner.ops_to_not_decompose`", lambda to: bool(to.preserved.where)
)
_CALLER_HAS_PASSES: Condition[ToExecutorch] = Condition("`passes=[...]`", lambda to: bool(to.config.passes))
_EXTERNAL_WEIGHTS: Condition[ToExecutorch] = Condition(
    "`external_mutable_weights=True`", lambda to: to.config.external_mutable_weights
)
_OPTIMIZES: Condition[ToExecutorch] = Condition(
    "not with `optimize=False`", lambda to: to.config.optimize is not False
)
_PORTABLE_KERNELS: Condition[ToExecutorch] = Condition(
    '`kernels="executorch-portable"`', lambda to: to.config.kernels == "executorch-portable"
)
_FUSES_AT_LOAD: Condition[ToExecutorch] = Condition(
    'not with `optimize=False` or `kernels="executorch-portable"`',
    lambda to: bool(to.config.optimize) and to.config.kernels != "executorch-portable",
)
_SHARES_VIEWS: Condition[ToExecutorch] = Condition(
    "not with `remove_view_copy=False`", lambda to: to.config.remove_view_copy
)
_WRITES_IN_PLACE: Condition[ToExecutorch] = Condition(
    "not with `run_reinplace_pass=False`", lambda to: to.config.run_reinplace_pass
)

CAPTURED: Stage[ToEdge] = Stage(
    "to_edge: what export leaves",
    "a copy of the captured program that PyTorch can decompose",
    (Row(copy_program), Row(spell_out_copies), Row(separate_updates), Row(lift_body_constants)),
)

TO_CORE_ATEN: Stage[ToEdge] = Stage(
    "to_edge: core ATen",
    "a functional program of core ATen operators, and of those that stay whole",
    (
        Row(hide_preserved_operators, when=_BACKENDS_CHOOSE_CALLS, given=lambda to, _: (to.preserved,)),
        Row(decompose_to_core, given=lambda to, method: (to.whole, method)),
        Row(show_preserved_operators, when=_BACKENDS_CHOOSE_CALLS),
        Row(remove_assertions),
    ),
)

TO_EDGE: Stage[ToEdge] = Stage(
    "to_edge: edge dialect",
    "a program in the edge dialect: every operator an edge operator, with debug handles",
    (
        Row(normalize_layouts),
        Row(replace_views_with_copies),
        Row(refresh_values),
        Row(remove_noops),
        Row(remove_stated_noops, when=_REMOVES_NOOPS),
        Row(scalar_to_tensor),
        Row(spell_out_symbolic_ops),
        Row(sym_to_tensor),
        Row(promote_mixed_dtypes),
        Row(state_dim_order, when=_STATES_DIM_ORDER),
        Row(replace_with_edge_ops),
        Row(remove_requantization),
        Row(sync_output_names),
        Row(eliminate_dead_code),
        Row(assign_debug_handles),
        Row(in_edge_dialect),
    ),
)

FUNCTIONAL: Stage[ToExecutorch] = Stage(
    "to_executorch: operators",
    "what the target runs, with updates written back and views in place of reshapes; here every problem is "
    "looked for",
    (
        Row(store_quantized_weights, given=lambda to, _: (to.kernels,)),
        Row(
            decompose_leftovers,
            given=lambda to, method: (to.kernels, to.edge_config, method, to.to_edge),
        ),
        Row(copy_program),
        Row(insert_write_backs),
        Row(run_graph_passes, when=_CALLER_HAS_PASSES, given=lambda to, _: (to.config.passes,)),
        Row(store_float8_as_bfloat16),
        Row(settle_constants),
        Row(tag_trained_weights, when=_EXTERNAL_WEIGHTS),
        Row(mark_shared_state, scope=Scope.FILE),
        Row(
            optimize_programs,
            when=_OPTIMIZES,
            given=lambda to, _: (to.config.optimizations,),
            scope=Scope.FILE,
            is_list=True,
        ),
        Row(legalize_portable_dim_order, when=_PORTABLE_KERNELS),
        Row(replace_view_copies, when=_SHARES_VIEWS),
        Row(give_calls_own_bodies),
        Row(give_branches_fresh_results),
        Row(separate_loop_values),
        Row(eliminate_dead_code),
    ),
)

INTO_MEMORY: Stage[ToExecutorch] = Stage(
    "to_executorch: memory",
    "out variants with specs, tensors of delegates on their devices, state updated in place where that is "
    "safe",
    (
        Row(state_specs),
        Row(
            propagate_devices,
            given=lambda to, method: (
                method,
                to.config.device_config_of(method),
                to.config.enable_non_cpu_memory_planning,
                to.kernels,
            ),
        ),
        Row(keep_operands_for_fusion, when=_FUSES_AT_LOAD),
        Row(to_out_variants),
        Row(reuse_in_place, when=_WRITES_IN_PLACE, given=lambda to, _: (to.kernels,)),
    ),
)

PLAN: Stage[ToExecutorch] = Stage(
    "to_executorch: memory plan",
    "every tensor with its place in memory, ready to be emitted",
    (
        Row(
            plan_memory,
            given=lambda to, _: (to.config.planning_of, to.config.enable_non_cpu_memory_planning),
            scope=Scope.FILE,
        ),
    ),
)

STAGES: tuple[Stage[ToEdge] | Stage[ToExecutorch], ...] = (
    CAPTURED,
    TO_CORE_ATEN,
    TO_EDGE,
    FUNCTIONAL,
    INTO_MEMORY,
    PLAN,
)
"""All of them, in order. Between `to_edge` and `to_executorch` come `transform` and `to_backend`."""
