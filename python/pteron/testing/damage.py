"""Files whose blobs are damaged: a run half refuses them or runs, and nothing else."""

from __future__ import annotations

import json
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
from pteron.testing.load_damaged import MARK, finding

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
    files = _damaged_files(manager, count)
    if isolate is None:
        found: Iterator[tuple[str, str | None]] = ((n, finding(f, arrays, runtime)) for n, f in files)
    else:
        found = _isolated(dict(files), arrays, isolate)
    yield from (f"{name}: {what}" for name, what in found if what)


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


def _isolated(files: dict[str, bytes], args: Sequence[Tensor], isolate: str) -> Iterator[tuple[str, str]]:
    """As `finding` for each file, in another process, whose death is a finding too; a new one goes on."""
    import torch

    with tempfile.TemporaryDirectory() as folder:
        inputs = Path(folder) / "inputs.pt"
        torch.save(list(args), inputs)
        names, left = list(files), []
        for number, file in enumerate(files.values()):
            left.append(Path(folder) / f"{number}.pte")
            left[-1].write_bytes(file)
        while left:
            command = [
                sys.executable,
                "-m",
                "pteron.testing.load_damaged",
                isolate,
                str(inputs),
                *map(str, left),
            ]
            found, end = _run(command, _SECONDS + len(left))
            yield from ((name, what) for name, what in zip(names, found, strict=False) if what)
            if end and len(found) < len(left):
                yield names[len(found)], end
            names, left = names[len(found) + 1 :], left[len(found) + 1 :]


def _run(command: list[str], seconds: int) -> tuple[list[str], str | None]:
    """The finding of each file that the process came to, "" for none, and how it ended before the last."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired as late:
        return _findings(late.stdout or b""), f"took more than {seconds} s"
    found = _findings(done.stdout.encode())
    if done.returncode < 0:
        return found, f"the process died of signal {-done.returncode}"
    return found, done.stderr.strip() or f"the process ended with status {done.returncode}"


def _findings(printed: bytes) -> list[str]:
    """Whole lines that the process printed as findings: what a backend prints is none of them."""
    lines = printed.decode(errors="replace").splitlines(keepends=True)
    marked = [line for line in lines if line.startswith(MARK) and line.endswith("\n")]
    return [json.loads(line.removeprefix(MARK)) or "" for line in marked]
