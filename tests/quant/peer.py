"""ExecuTorch beside us: `python -m tests.quant.peer FOLDER`, in a process that imports nothing of ours.

`FOLDER/NAME.pte` is our file of the flow NAME, with `NAME.inputs`. Written beside them: `NAME.ours`, what
ExecuTorch's runtime computes with our file, or `NAME.missing`, what it says where it has not all kernels;
`NAME.theirs.pte`, ExecuTorch's own file of the same flow, with what it computes in `NAME.theirs`, or
`NAME.refused`, why ExecuTorch makes no file.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import torch

warnings.simplefilter("ignore")

import executorch.kernels.quantized  # noqa: E402, F401
from executorch.exir import ExecutorchBackendConfig, to_edge  # noqa: E402
from executorch.runtime import Runtime  # noqa: E402

from tests.quant.flows import FLOWS, PEER_FLOWS  # noqa: E402


def run(folder: Path, name: str, file: str) -> torch.Tensor:
    """Runs one file."""
    method = Runtime.get().load_program(folder / file).load_method("forward")
    assert method is not None
    result: torch.Tensor = method.execute(torch.load(folder / f"{name}.inputs"))[0].clone()
    return result


def lower(name: str, target: Path) -> None:
    """ExecuTorch's own file; with the fusion that embeddings need."""
    model, inputs = FLOWS[name]()
    config = ExecutorchBackendConfig(do_quant_fusion_and_const_prop=True)
    target.write_bytes(to_edge(torch.export.export(model, inputs)).to_executorch(config).buffer)


def main(folder: Path) -> None:
    """Every flow in turn."""
    for path in folder.glob("*.inputs"):
        name = path.stem
        try:
            torch.save(run(folder, name, f"{name}.pte"), folder / f"{name}.ours")
        except RuntimeError as error:
            (folder / f"{name}.missing").write_text(str(error))
        if name not in PEER_FLOWS:
            continue
        try:
            lower(name, folder / f"{name}.theirs.pte")
        except Exception as error:  # each stage of theirs has a class of its own
            (folder / f"{name}.refused").write_text(str(error))
        else:
            torch.save(run(folder, name, f"{name}.theirs.pte"), folder / f"{name}.theirs")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
