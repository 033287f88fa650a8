"""The memory of this process, as the kernel counts it."""

from __future__ import annotations

import ctypes
from pathlib import Path


def status(key: str) -> float:
    """A line of /proc/self/status in MiB. (`getrusage` would count the parent's memory, too.)"""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:")) / 1024


class Memory:
    """The most resident memory from now on, beyond what is resident now.

    What imports have freed goes back to the system first, and their peak is forgotten: PyTorch leaves some
    10 MiB of free heap behind, in which what an engine asks for next would not be seen.
    """

    def __init__(self) -> None:
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        self._before = status("VmRSS")

    def most(self) -> float:
        """In MiB."""
        return status("VmHWM") - self._before
