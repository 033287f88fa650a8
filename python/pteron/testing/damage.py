"""Files whose blobs are damaged: a run half refuses them or runs, and nothing else."""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from torch import Tensor

import pteron
from pteron.exir import EdgeProgramManager
from pteron.exir.backend.lowered_backend_module import LoweredBackendModule, get_lowered_backend_modules
from pteron.testing.load_damaged import finding

_SECONDS = 60


def damage_findings(
    manager: EdgeProgramManager,
    args: Sequence[Tensor],
    count: int,
    runtime: pteron.Runtime | None,
    isolate: str | None,
) -> Iterator[str]:
    """What is wrong with how `count` damaged copies of the first blob are taken: a text for each."""
    arrays = [arg.detach().clone() for arg in args]
    for name, file in _damaged_files(manager, count):
        what = finding(file, arrays, runtime) if isolate is None else _isolated(file, arrays, isolate)
        if what:
            yield f"{name}: {what}"


def _damaged_files(manager: EdgeProgramManager, count: int) -> Iterator[tuple[str, bytes]]:
    """A file for each kind of damage: cut off, empty, longer, and single bytes replaced."""
    lowered = get_lowered_backend_modules(manager.exported_program().graph_module)[0]
    blob = lowered.processed_bytes
    file = manager.to_executorch().buffer
    at = file.find(blob) if blob else -1
    changes = [("an empty blob", b""), ("a byte too many", blob + b"\0")]
    changes += [(f"cut off at byte {end}", blob[:end]) for end in _spread(len(blob), count // 4)]
    for name, changed in changes:
        yield name, _with_blob(manager, lowered, changed)
    chosen = random.Random(0)
    for place in _spread(len(blob), count - count // 4) if at >= 0 else ():
        value = chosen.choice([blob[place] ^ 0xFF, 0, 0xFF, (blob[place] + 1) % 256])
        yield f"byte {place} is {value}", file[: at + place] + bytes([value]) + file[at + place + 1 :]


def _spread(length: int, count: int) -> list[int]:
    """At most `count` places, spread over `length`."""
    step = max(1, -(-length // max(1, count)))
    return list(range(0, length, step))


def _with_blob(manager: EdgeProgramManager, lowered: LoweredBackendModule, blob: bytes) -> bytes:
    kept = lowered._processed_bytes
    lowered._processed_bytes = blob
    try:
        return manager.to_executorch().buffer
    finally:
        lowered._processed_bytes = kept


def _isolated(file: bytes, args: Sequence[Tensor], isolate: str) -> str | None:
    """As `finding`, in a process of its own, whose death is a finding too."""
    import torch

    with tempfile.TemporaryDirectory() as folder:
        program, inputs = Path(folder) / "damaged.pte", Path(folder) / "inputs.pt"
        program.write_bytes(file)
        torch.save(list(args), inputs)
        command = [sys.executable, "-m", "pteron.testing.load_damaged", isolate, str(program), str(inputs)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return f"took more than {_SECONDS} s"
    if done.returncode < 0:
        return f"the process died of signal {-done.returncode}"
    return done.stdout.strip() or (done.stderr.strip() if done.returncode else None)
