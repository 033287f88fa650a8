"""Graph passes: one per file, in the order that `pteron.exir.pass_order` lists.

Those named here can be given to `EdgeProgramManager.transform` and to `ExecutorchBackendConfig(passes=...,
optimize=...)`.
"""

from __future__ import annotations

from pteron.exir.memory.memory_planning_pass import MemoryPlanningPass
from pteron.exir.passes.cancel_permutes import cancel_permutes
from pteron.exir.passes.export_pass import ExportPass
from pteron.exir.passes.exported_program_pass import (
    ExportedProgramPassBase,
    ExportedProgramPassResult,
    in_place_pass,
)
from pteron.exir.passes.fold_batch_norms import fold_batch_norms
from pteron.exir.passes.fold_constants import FoldConstants
from pteron.exir.passes.legalize_portable_dim_order import LegalizePortableDimOrderPass
from pteron.exir.passes.merge_common_subexpressions import merge_common_subexpressions
from pteron.exir.passes.merge_views import merge_views
from pteron.exir.passes.optimizations import OPTIMIZATIONS
from pteron.exir.passes.pass_manager import ExportedProgramPassManager, PassManager
from pteron.exir.passes.proxy_value import ExportPassBaseError, NodeMetadata, ProxyValue
from pteron.exir.passes.prune_empty_tensors import prune_empty_tensors
from pteron.exir.passes.remove_noop_copies import remove_noop_copies
from pteron.exir.passes.remove_requantization import remove_requantization
from pteron.exir.passes.spec_prop_pass import SpecPropPass

__all__ = [
    "OPTIMIZATIONS",
    "ExportPass",
    "ExportPassBaseError",
    "ExportedProgramPassBase",
    "ExportedProgramPassManager",
    "ExportedProgramPassResult",
    "FoldConstants",
    "LegalizePortableDimOrderPass",
    "MemoryPlanningPass",
    "NodeMetadata",
    "PassManager",
    "ProxyValue",
    "SpecPropPass",
    "cancel_permutes",
    "fold_batch_norms",
    "in_place_pass",
    "merge_common_subexpressions",
    "merge_views",
    "prune_empty_tensors",
    "remove_noop_copies",
    "remove_requantization",
]
