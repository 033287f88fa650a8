"""Which parts of a program go to OpenVINO."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch.export.exported_program import ExportedProgram

from pteron.exir.backend.canonical_partitioners.pattern_op_partitioner import generate_pattern_op_partitions
from pteron.exir.backend.compile_spec import CompileSpec
from pteron.exir.backend.constant_tagging import tag_constant_data, tag_mutated_buffer
from pteron.exir.backend.partition_report import WhyNoPartitionReporter
from pteron.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from pteron_openvino.preprocess import PteronOpenvinoBackend
from pteron_openvino.support import OpenvinoSupport

#: A part of nothing but these is not worth a call of its own.
_MOVES = {
    *("aten.view_copy.default", "aten.permute_copy.default", "aten.transpose_copy.int"),
    *("aten.unsqueeze_copy.default", "aten.squeeze_copy.dims", "aten.expand_copy.default"),
    *("aten.slice_copy.Tensor", "aten.select_copy.int", "aten.clone.default", "aten.full.default"),
    *("aten.split_with_sizes_copy.default", "aten.arange.start_step", "aten.alias_copy.default"),
    *("dim_order_ops._clone_dim_order.default", "dim_order_ops._to_dim_order_copy.default"),
}


class OpenvinoPartitioner(Partitioner):
    """Takes what OpenVINO's frontend for PyTorch converts and what it computes as PyTorch does.

    Args:
        settings: device and properties, as text or numbers; they become compile specs, and `backend_options`
            of a session go before them. `pteron_openvino.settings` says which there are.
        takes_integers: take arithmetic of integers and float64 too. OpenVINO computes it in 32 bits.
        left: names of edge operators to leave, such as "aten.softmax.int".
    """

    def __init__(
        self,
        settings: Mapping[str, str | int | bool] | None = None,
        *,
        takes_integers: bool = False,
        left: Iterable[str] = (),
    ) -> None:
        super().__init__()
        specs = [CompileSpec(key, str(value).encode()) for key, value in (settings or {}).items()]
        self.delegation_spec = DelegationSpec(PteronOpenvinoBackend.__name__, specs)
        self._takes_integers, self._left = takes_integers, frozenset(left)

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Tags the nodes; what stays has a reason in the delegation report."""
        reporter = WhyNoPartitionReporter()
        support = OpenvinoSupport(reporter.report_reject, self._takes_integers, self._left)
        tags: dict[str, DelegationSpec] = {}
        for part in generate_pattern_op_partitions(exported_program.graph_module, op_support=support):
            if not any(_computes(node) for node in part.nodes):
                for node in part.nodes:
                    reporter.report_reject(node, "it moves data, and nothing beside it computes")
                continue
            tag = f"openvino{part.id}"
            tags[tag] = self.delegation_spec
            for node in part.nodes:
                node.meta["delegation_tag"] = tag
        tag_constant_data(exported_program)
        tag_mutated_buffer(exported_program)
        return PartitionResult(exported_program, tags)


def _computes(node: torch.fx.Node) -> bool:
    name = getattr(node.target, "__name__", "")
    if name == "getitem":
        return False
    values = torch.utils._pytree.tree_leaves(node.meta.get("val"))
    return name not in _MOVES and any(isinstance(value, torch.Tensor) for value in values)
