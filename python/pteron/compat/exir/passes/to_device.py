"""Moves a graph of PyTorch operators, such as a quantised one, to another device before it is exported."""

from __future__ import annotations

import torch
from torch.fx.passes.infra.pass_base import PassResult

from pteron.exir.passes.export_pass import ExportPass


class ToDevicePass(ExportPass):
    """Parameters, buffers and the keyword `device` of calls get the device given, in place.

    What nodes state about their results stays: the graph is traced anew by `torch.export`.
    """

    def __init__(self, device: str | torch.device) -> None:
        super().__init__()
        self.device = torch.device(device)

    def __call__(self, graph_module: torch.fx.GraphModule) -> PassResult:
        """Does it; the hooks of `ExportPass` are not called."""
        return self.call(graph_module)

    def call(self, graph_module: torch.fx.GraphModule) -> PassResult:
        """Does it."""
        moved = graph_module.to(self.device)
        for node in moved.graph.nodes:
            if node.op == "call_function" and "device" in node.kwargs:
                node.update_kwarg("device", self.device)
        moved.recompile()
        return PassResult(moved, True)
