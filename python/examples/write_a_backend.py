"""A backend of one's own: it takes matrix products and additions, and computes them with NumPy.

    python write_a_backend.py export mlp.pte          # torch: lowers a small network to the backend
    python write_a_backend.py run mlp.pte             # no torch: registers the run half, runs the program

Put your accelerator's compiler where `preprocess` is, and its driver where `NumpyDelegate` is.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np

import pteron

#: What the backend takes: the operator in the graph, and what computes it.
KERNELS = {"aten.mm.default": np.matmul, "aten.add.Tensor": np.add}


class NumpyDelegate:
    """Run half of one subgraph: steps over named arrays."""

    num_outputs = 1

    def __init__(self, blob: dict[str, Any]) -> None:
        self.blob = blob

    def execute(self, ctx: Any, inputs: Any, outputs: Any) -> None:
        names = dict(zip(self.blob["inputs"], (np.asarray(value) for value in inputs), strict=True))
        for operator, result, arguments in self.blob["steps"]:
            names[result] = KERNELS[operator](*(names[name] for name in arguments))
        np.asarray(outputs[0])[...] = names[self.blob["output"]]


class NumpyRuntime:
    """Run half of the backend: checks the blob, which may come from anybody."""

    def is_available(self) -> bool:
        return True

    def init(self, ctx: Any, processed: memoryview, compile_specs: Any) -> NumpyDelegate:
        blob = json.loads(bytes(processed))
        unknown = {step[0] for step in blob["steps"]} - set(KERNELS)
        if unknown:
            raise ValueError(f"this file needs {sorted(unknown)}, the backend has {sorted(KERNELS)}")
        return NumpyDelegate(blob)


def export(output: str) -> None:
    """Compile half: what the partitioner tags becomes a blob by `preprocess`."""
    import torch
    from torch import nn
    from torch.fx.passes.operator_support import create_op_support

    from pteron.exir import to_edge_transform_and_lower
    from pteron.exir.backend.backend_details import BackendDetails, PreprocessResult
    from pteron.exir.backend.canonical_partitioners.pattern_op_partitioner import (
        generate_pattern_op_partitions,
    )
    from pteron.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult

    class NumpyBackend(BackendDetails):
        @staticmethod
        def preprocess(program: Any, compile_specs: Any) -> PreprocessResult:
            blob: dict[str, Any] = {"inputs": [], "steps": []}
            for node in program.graph.nodes:
                if node.op == "placeholder":
                    blob["inputs"].append(node.name)
                elif node.op == "call_function":
                    names = [argument.name for argument in node.args]
                    blob["steps"].append([node.target.__name__, node.name, names])
                else:
                    (blob["output"],) = (result.name for result in node.args[0])
            return PreprocessResult(json.dumps(blob).encode())

    class NumpyPartitioner(Partitioner):
        def partition(self, program: Any) -> PartitionResult:
            def known(modules: Any, node: Any) -> bool:
                name = getattr(node.target, "__name__", "")
                tensors = all(isinstance(argument, torch.fx.Node) for argument in node.args)
                return name in KERNELS and tensors and not node.kwargs

            graph, tags = program.graph_module, {}
            for part in generate_pattern_op_partitions(graph, op_support=create_op_support(known)):
                tags[f"numpy{part.id}"] = DelegationSpec("NumpyBackend", [])
                for node in part.nodes:
                    node.meta["delegation_tag"] = f"numpy{part.id}"
            return PartitionResult(program, tags)

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.eye(4) * 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(torch.mm(x, self.weight) + x)

    exported = torch.export.export(Residual().eval(), (torch.randn(3, 4),))
    manager = to_edge_transform_and_lower(exported, partitioner=[NumpyPartitioner()])
    print(manager.delegation_report())
    manager.to_executorch().save(output)


def run(path: str) -> None:
    """Registers the run half and runs the program; without it load names what is missing."""
    pteron.register_backend("NumpyBackend", NumpyRuntime())
    program = pteron.load(path)
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    print(f"backends: {', '.join(program.backends('forward'))}")
    print(
        f"the largest difference from NumPy: {np.abs(program.run('forward', x) - np.maximum(3 * x, 0)).max()}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("export", "run"))
    parser.add_argument("program")
    options = parser.parse_args()
    (export if options.command == "export" else run)(options.program)


if __name__ == "__main__":
    main()
