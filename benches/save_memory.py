"""How much memory and time it takes to save a program.

    python benches/save_memory.py [gigabytes]

Prints the weights, the most resident memory before the save and with it, and the seconds of the save.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import torch
from results import Tables, add_json_option
from torch import nn

import pteron
from pteron.exir import to_edge

MEBIBYTE = 1 << 20


class Layers(nn.Module):
    """Linear layers of 64 MiB each."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4096, 4096, bias=False) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Measure one model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gigabytes", type=float, nargs="?", default=2.0)
    add_json_option(parser)
    options = parser.parse_args()
    model = Layers(round(options.gigabytes * 16)).eval()
    weights = sum(p.numel() * p.element_size() for p in model.parameters()) / MEBIBYTE
    manager = to_edge(torch.export.export(model, (torch.ones(1, 4096),))).to_executorch()
    before = _peak()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pte"
        start = time.perf_counter()
        manager.save(path)
        saved = time.perf_counter() - start
        after = _peak()
        start = time.perf_counter()
        pteron.load(path)
        loaded = time.perf_counter() - start
        size = path.stat().st_size / MEBIBYTE
    print(f"weights {weights:.0f} MiB, file {size:.0f} MiB")
    print(f"most memory before the save {before:.0f} MiB, with it {after:.0f} MiB: {after - before:+.0f} MiB")
    print(f"save {saved:.2f} s, load {loaded * 1000:.1f} ms")
    tables = Tables()
    tables.begin(["weights", "file", "most memory before the save", "with it", "save", "load"])
    sizes = (f"{n:.0f} MiB" for n in (weights, size, before, after))
    tables.row(*sizes, f"{saved:.2f} s", f"{loaded * 1000:.1f} ms")
    tables.save(options)


if __name__ == "__main__":
    main()
