"""Passes over an exported program: write-backs of buffers, constants in an order that files can state."""

from __future__ import annotations

import torch
from torch.export import ExportedProgram

from pteron.exir.edge.tensor_spec import dim_order_of_value
from pteron.exir.passes.constant_values import constant_values
from pteron.exir.passes.insert_write_backs import insert_write_backs
from pteron.exir.passes.run_graph_passes import copy_program


def insert_write_back_for_buffers_pass(
    ep: ExportedProgram,
) -> tuple[torch.fx.GraphModule, torch.export.ExportGraphSignature]:
    """(graph, signature) of a copy of the program in which updates of buffers and inputs are copies at the
    end and no outputs.
    """
    made = copy_program(ep)
    insert_write_backs(made)
    return made.graph_module, made.graph_signature


def convert_constant_dim_order_pass(exported_program: ExportedProgram) -> ExportedProgram:
    """Make constants and buffers contiguous that are neither contiguous nor channels last, in place."""
    for node, value in constant_values(exported_program).items():
        is_ordered = value.is_contiguous() or dim_order_of_value(value) != tuple(range(value.dim()))
        spec = next(
            each for each in exported_program.graph_signature.input_specs if each.arg.name == node.name
        )
        if is_ordered or isinstance(value, torch.nn.Parameter) or spec.target is None:
            continue
        in_state = spec.target in exported_program.state_dict
        store = exported_program.state_dict if in_state else exported_program.constants
        store[spec.target] = value.contiguous()
        node.meta["val"] = node.meta["val"].contiguous()
    return exported_program
