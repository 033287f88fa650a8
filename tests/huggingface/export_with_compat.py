"""Exports one architecture with `ExecutorchExporter` of transformers, which finds pteron as `executorch`.

    python export_with_compat.py NAME FOLDER

The folder gets what `save_pretrained` writes, and `<component>.pt`: keywords, and eager's flat outputs.
"""

from __future__ import annotations

import copy
import sys
import warnings
from pathlib import Path

import torch
import torch.utils._pytree as pytree

import pteron.compat

pteron.compat.install()
warnings.simplefilter("ignore")
torch.set_num_threads(1)


def main(name: str, folder: Path) -> None:
    from transformers.exporters.configs import ExecutorchConfig
    from transformers.exporters.exporter_executorch import ExecutorchExporter
    from transformers.exporters.utils import decompose_for_generation

    from pteron.exir import ExecutorchProgramManager
    from tests.huggingface.architectures import ARCHITECTURES

    (row,) = [row for row in ARCHITECTURES if row.name == name]
    torch.manual_seed(0)
    model, example = row.build().eval(), row.example()
    exporter, config = ExecutorchExporter(), ExecutorchConfig(dynamic=True)
    if row.generates:
        components = decompose_for_generation(model, dict(example))
        exported = exporter.export_for_generation(model, dict(example), config)
    else:
        components = {"model": (model, dict(example))}
        exported = exporter.export(model, dict(example), config)
    exported.save_pretrained(folder)
    for component, (module, keywords) in components.items():
        program = exported.components[component].program
        assert type(program) is ExecutorchProgramManager
        assert any(
            delegate.id == "XnnpackBackend"
            for delegate in program.executorch_program.execution_plan[0].delegates
        )
        with torch.no_grad():
            outputs = pytree.tree_leaves(module(**copy.deepcopy(keywords)))
        tensors = [leaf for leaf in outputs if isinstance(leaf, torch.Tensor)]
        torch.save((keywords, tensors), folder / f"{component}.pt")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
