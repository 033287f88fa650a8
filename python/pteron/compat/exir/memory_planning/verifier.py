"""The check of a planned graph."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch.export.graph_signature import ExportGraphSignature

from pteron.compat.exir.error import InternalError, internal_assert
from pteron.compat.exir.memory_planning.graph_specs import (
    _do_user_inputs_exist,
    _get_mutable_buffer_specs,
    _is_mutable_buffer,
    collect_specs_from_nodes,
    get_graph_input_tensors,
    get_graph_output_tensors,
    get_node_tensor_specs,
    span,
    storage_bases,
)
from pteron.exir.edge.tensor_spec import TensorSpec
from pteron.exir.schema import TensorShapeDynamism


class Verifier:
    """Checks that specs in use together do not share bytes, and that inputs and outputs are planned as the
    settings say.
    """

    def __init__(
        self,
        graph_module: torch.fx.GraphModule,
        alloc_graph_input: bool,
        alloc_graph_output: bool,
        alloc_mutable_buffers: bool,
        graph_signature: ExportGraphSignature | None = None,
    ) -> None:
        self.graph_module = graph_module
        self.graph_signature = graph_signature
        self.alloc_graph_input = alloc_graph_input
        self.alloc_graph_output = alloc_graph_output
        self.alloc_mutable_buffers = alloc_mutable_buffers

    @classmethod
    def mem_obj_id_match(
        cls, lhs_spec: TensorSpec, rhs_spec: TensorSpec, accept_both_none: bool = True
    ) -> bool:
        """Whether two specs lie in one shared object; `accept_both_none` where neither lies in any."""
        if lhs_spec.mem_id != rhs_spec.mem_id:
            return False
        if lhs_spec.mem_obj_id is None and rhs_spec.mem_obj_id is None:
            return accept_both_none
        return lhs_spec.mem_obj_id == rhs_spec.mem_obj_id

    @classmethod
    def has_overlap(cls, lhs_ivl: Sequence[int], rhs_ivl: Sequence[int]) -> bool:
        """Whether two intervals, ends included, have a common point."""
        return max(lhs_ivl[0], rhs_ivl[0]) <= min(lhs_ivl[1], rhs_ivl[1])

    @classmethod
    def lifetime_overlap(cls, lhs_spec: TensorSpec, rhs_spec: TensorSpec) -> bool:
        """Whether two specs are in use at one node; InternalError before lifetimes are known."""
        return cls.has_overlap(span(lhs_spec), span(rhs_spec))

    @classmethod
    def storage_overlap(cls, lhs_spec: TensorSpec, rhs_spec: TensorSpec) -> bool:
        """Whether two specs have a common byte; InternalError where one of them has no place."""
        if lhs_spec.mem_id != rhs_spec.mem_id:
            return False
        bytes_of = []
        for spec in (lhs_spec, rhs_spec):
            offset = spec.mem_offset
            internal_assert(
                isinstance(offset, int) and offset >= 0, f"{spec} should have specified memory offset"
            )
            assert offset is not None
            bytes_of.append((offset, offset + spec.allocated_memory - 1))
        return cls.has_overlap(*bytes_of)

    def verify_storage_reuse(self, allow_lifetime_and_storage_overlap: bool = False) -> int:
        """The number of pairs of specs with common bytes.

        Raises:
            InternalError: the two of such a pair are in use together and neither lies in the other by its
                `storage_base`, unless `allow_lifetime_and_storage_overlap`; or they are in two shared
                objects.
        """
        specs = collect_specs_from_nodes(
            self.graph_module.graph.nodes,
            self.graph_signature,
            ignore_graph_input=not self.alloc_graph_input,
            ignore_graph_output=not self.alloc_graph_output,
            ignore_mutable_buffers=not self.alloc_mutable_buffers,
            ignore_out_var_node=False,
            do_assertion=False,
        )
        pairs = 0
        for lhs, rhs in itertools.combinations(specs, 2):
            if (lhs.mem_obj_id is None) != (rhs.mem_obj_id is None):
                raise InternalError("Specs do not agree on whether mem_obj_id is defined.")
            if not self.storage_overlap(lhs, rhs):
                continue
            is_inside = lhs in storage_bases(rhs) or rhs in storage_bases(lhs)
            if not allow_lifetime_and_storage_overlap and not is_inside and self.lifetime_overlap(lhs, rhs):
                raise InternalError(f"Unexpected storage overlap: {lhs.debug()} and {rhs.debug()}")
            if not self.mem_obj_id_match(lhs, rhs):
                raise InternalError(f"Unexpected mem_obj_id mismatch: lhs {lhs}, rhs {rhs}")
            pairs += 1
        return pairs

    def verify_graph_input_output(self) -> None:
        """AssertionError where inputs or outputs are planned against the settings, or some of them only.

        A graph that returns an input is not checked where the settings of the two differ.
        """
        nodes = self.graph_module.graph.nodes
        returned = get_graph_output_tensors(nodes)
        is_passed_on = bool(get_graph_input_tensors(nodes, self.graph_signature) & returned)
        if is_passed_on and self.alloc_graph_input != self.alloc_graph_output:
            return
        updated = _get_mutable_buffer_specs(nodes, self.graph_signature)
        inputs: list[TensorSpec] = []
        outputs: list[TensorSpec] = []
        for node in nodes:
            if node.op not in ("placeholder", "output") or _is_mutable_buffer(node, self.graph_signature):
                continue
            found = inputs if node.op == "placeholder" else outputs
            found += [spec for spec in get_node_tensor_specs(node) if not spec.const and spec not in updated]
        if _do_user_inputs_exist(self.graph_signature):
            _require_planned("input", inputs, self.alloc_graph_input)
        _require_planned("output", outputs, self.alloc_graph_output)


def _require_planned(what: str, specs: list[TensorSpec], is_asked: bool) -> None:
    unbound = TensorShapeDynamism.DYNAMIC_UNBOUND
    planned = {spec.mem_offset is not None for spec in specs}
    if len(planned) > 1:
        raise AssertionError(f"Either all or none of the tensors of graph {what} should be allocated memory")
    if planned and planned != {is_asked} and all(spec.shape_dynamism is not unbound for spec in specs):
        raise AssertionError(f"Misallocate graph {what}: {not is_asked} v.s. {is_asked}")
