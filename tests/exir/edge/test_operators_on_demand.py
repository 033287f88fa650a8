"""Operators whose module is imported when they are asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest


def test_a_package_that_asks_while_it_is_imported_keeps_its_submodules() -> None:
    pytest.importorskip("torchao")
    code = """
import pteron.exir
import torchao.quantization
assert "utils" in vars(torchao.quantization)
import torch
assert torch.ops.torchao.quantize_affine is not None
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=120)
