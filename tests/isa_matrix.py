"""Tests at every instruction set, ours and eager PyTorch's: `python -m tests.isa_matrix PYTEST_ARGUMENTS`.

Every level of both appears in a pair; a pair that this processor lacks is left out, and said to be.
"""

from __future__ import annotations

import os
import subprocess
import sys

import torch

import pteron

EAGERS = ["default", "avx2", "avx512"]
#: `PTERON_ISA` and `ATEN_CPU_CAPABILITY`.
PAIRS = [("avx512", "avx2"), ("avx2", "default"), ("portable", "avx512"), ("neon", "default")]


def is_possible(ours: str, eager: str) -> bool:
    """Has this processor both levels?"""
    best_eager = torch.backends.cpu.get_cpu_capability().lower()
    return pteron.Runtime(isa=ours).isa == ours and EAGERS.index(eager) <= EAGERS.index(best_eager)


def main(arguments: list[str]) -> int:
    """The first status that is not zero."""
    for ours, eager in PAIRS:
        name = f"PTERON_ISA={ours} ATEN_CPU_CAPABILITY={eager}"
        if not is_possible(ours, eager):
            print(f"{name}: left out, this processor has less", flush=True)
            continue
        print(name, flush=True)
        environment = {**os.environ, "PTERON_ISA": ours, "ATEN_CPU_CAPABILITY": eager}
        done = subprocess.run([sys.executable, "-m", "pytest", *arguments], env=environment, check=False)
        if done.returncode:
            return done.returncode
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
