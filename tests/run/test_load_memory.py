"""Loading holds the weights once, also where rules try what they would build."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import pteron
from pteron.exir import to_edge

PEAK = """
import sys
import pteron

def most_resident():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

# What a small twin needs of the library's code is there then: the system decides how many pages come along.
pteron.load(sys.argv[2]).load_method()
before = most_resident()
program = pteron.load(sys.argv[1])
method = program.load_method()
print(most_resident() - before)
print(program.plan_listing("forward"))
"""


class Block(nn.Module):
    """A linear layer whose tail, and one whose residual sum, the loader fuses."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = x + self.second(torch.nn.functional.gelu(self.first(x)))
        return result


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak from Linux's /proc")
def test_weights_are_held_once_while_a_method_is_loaded(tmp_path: Path) -> None:
    width, blocks = 1024, 8
    path, small = tmp_path / "blocks.pte", tmp_path / "small.pte"
    for file, columns in ((path, width), (small, 32)):
        model = nn.Sequential(*(Block(columns) for _ in range(blocks)))
        to_edge(torch.export.export(model.eval(), (torch.randn(4, columns),))).to_executorch().save(file)
    environment = {**os.environ, "PYTHONPATH": str(Path(pteron.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(path), str(small)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    weights = 2 * blocks * width * width * 4
    peak = int(done.stdout.split()[0]) * 1024
    assert weights <= peak < 1.15 * weights
    assert done.stdout.count("gelu") == blocks


FULL = """
import resource, sys
import pteron
# What the process has mapped already stays; the file finds no room.
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
try:
    pteron.load(sys.argv[1])
except pteron.LimitExceeded as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space as Linux does")
def test_a_file_that_finds_no_room_says_which_limit(tmp_path: Path) -> None:
    path = tmp_path / "large.pte"
    path.touch()
    os.truncate(path, 64 << 30)  # without blocks on the disk
    environment = {**os.environ, "PYTHONPATH": str(Path(pteron.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(path)], capture_output=True, text=True, env=environment, check=True
    )
    assert "does not fit into the process's memory" in done.stdout
    assert "RLIMIT_AS" in done.stdout
