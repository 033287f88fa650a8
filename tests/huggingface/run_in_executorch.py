"""Runs a folder of `export_with_compat.py` in ExecuTorch's own runtime, with transformers' runner.

python run_in_executorch.py FOLDER
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import torch
import torch.utils._pytree as pytree
from transformers.exporters import ExportedModel

warnings.simplefilter("ignore")
torch.set_num_threads(1)
TOLERANCE = 1e-4


def main(folder: Path) -> None:
    exported = ExportedModel.from_pretrained(folder)
    assert "pteron" not in sys.modules
    for name, runner in exported.runners.items():
        keywords, expected = torch.load(folder / f"{name}.pt", weights_only=False)
        leaves = pytree.tree_leaves(runner(**keywords))
        ours = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        assert [tensor.shape for tensor in ours] == [tensor.shape for tensor in expected], name
        for mine, theirs in zip(ours, expected, strict=True):
            largest = float(theirs.abs().max()) or 1.0
            assert float((mine - theirs).abs().max()) / largest <= TOLERANCE, name


if __name__ == "__main__":
    main(Path(sys.argv[1]))
