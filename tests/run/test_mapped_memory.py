"""Plain weights of a mapped file do not stay in memory beside their packs."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import pteron
from pteron.exir import to_edge

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/smaps")


def _resident(file: Path) -> int:
    """Bytes of this process's mapping of `file` that are in memory."""
    maps = Path("/proc/self/smaps").read_text()
    return 1024 * sum(
        int(n) for n in re.findall(rf"{re.escape(str(file))}\n(?:\w.*\n)*?Rss: +(\d+) kB", maps)
    )


def test_reading_a_bias_does_not_bring_the_weights_around_it_back(tmp_path: Path) -> None:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(256, 256) for _ in range(16)]
    model = torch.nn.Sequential(*layers).eval()
    file = tmp_path / "layers.pte"
    to_edge(torch.export.export(model, (torch.ones(1, 256),))).to_executorch().save(file)
    size = file.stat().st_size
    assert size > 16 * 256 * 256 * 4
    file.read_bytes()  # into the page cache, where a page is mapped with its neighbours

    program = pteron.load(file)
    method = program.load_method()
    x = np.ones((1, 256), np.float32)
    (result,) = method.execute([x])
    # Loading read every weight, and every call reads the biases between them.
    assert 0 < _resident(file) < size // 32
    with torch.no_grad():
        np.testing.assert_allclose(result, model(torch.from_numpy(x)).numpy(), rtol=1e-4, atol=1e-5)

    # Another method of the program finds the packs, and the biases again.
    (again,) = program.load_method().execute([x])
    np.testing.assert_array_equal(again, result)
    assert _resident(file) < size // 32
