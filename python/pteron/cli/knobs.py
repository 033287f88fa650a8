"""List every switch of the run half: rewrites at load, environment variables, options; with defaults."""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict, dataclass

import pteron
from pteron import _native
from pteron.cli.arguments import add_json, print_json
from pteron.cli.tables import table

EXAMPLE = "pteron knobs"


@dataclass(frozen=True)
class Knob:
    """One switch."""

    name: str
    value: str
    default: str
    meaning: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_json(parser)


def execute(options: argparse.Namespace) -> int:
    """Prints the list."""
    found = knobs()
    if options.json:
        print_json([asdict(knob) for knob in found])
    else:
        rows = [(knob.name, knob.meaning, knob.value, knob.default) for knob in found]
        print(table(("switch", "meaning", "value", "default"), rows), end="")
    return 0


def knobs() -> list[Knob]:
    """Every switch, with what it is in this process."""
    runtime = pteron.Runtime.shared()
    found = [
        Knob(
            "PTERON_ISA",
            os.environ.get("PTERON_ISA", "(not set)"),
            "(not set)",
            f"instruction set of the kernels: portable, neon, avx2, avx512; here {runtime.isa}",
        ),
        Knob(
            "PTERON_PROGRESS",
            os.environ.get("PTERON_PROGRESS", "(not set)"),
            "(not set)",
            "0 or 1: show the progress of an export never or always",
        ),
        *(
            Knob(
                name,
                os.environ.get(name, "(not set)"),
                "(not set)",
                f"most threads of the pool of the process{rest}",
            )
            for name, rest in (("PTERON_NUM_THREADS", ""), ("OMP_NUM_THREADS", ", without the former"))
        ),
        Knob(
            "XDG_CACHE_HOME",
            os.environ.get("XDG_CACHE_HOME", "(not set)"),
            "~/.cache",
            "folder of the folder `pteron` with the measured ceilings (on a Mac always ~/Library/Caches)",
        ),
        Knob("Runtime(isa=)", runtime.isa, "the best of the processor", "instruction set of a runtime"),
        Knob(
            "Runtime(num_threads=)",
            str(runtime.num_threads),
            "processors of the process, at most those of PTERON_NUM_THREADS",
            "threads that the sessions of a runtime share",
        ),
        Knob("load_method(num_threads=)", "per session", "all of the runtime", "threads of a session"),
        Knob("load_method(seed=)", "per session", "random", "where random numbers begin"),
        Knob("load(mmap=)", "per program", "True", "map the file, or read it"),
    ]
    found += [
        Knob(f"Limits({name}=)", "per program or session", default, f"most {meaning}")
        for name, (default, meaning) in LIMITS.items()
    ]
    found += [
        Knob(f"Runtime(disabled_rules=[{rule!r}])", "on", "on", "a rewrite at load")
        for rule in _native.rule_names()
    ]
    return found


#: Defaults and meanings, as docs/reference/limits.md has them.
LIMITS = {
    "arena_bytes": ("half of the memory", "bytes of planned memory of a session"),
    "instructions": ("none", "instructions that a call executes"),
    "time": ("none", "seconds of a call"),
    "nesting": ("8", "programs inside each other"),
    "values": ("1,048,576", "values of a method"),
    "rank": ("16", "dimensions of a tensor"),
}
