"""Instructions of the inner loops of NEON kernels, from the machine code of a build for 64-bit ARM.

    python -m tests.aarch64.instruction_counts OBJDUMP FILES [--check]

The inner loop of a function is the shortest of those, from the target of a backward jump to that jump, that
have the most multiplications. Counts stand in for times, which an emulator cannot take. `--check` fails where
a count is above its limit.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Kernel:
    """A function by a pattern of its demangled name, what multiplies in it, and the limit."""

    title: str
    pattern: str
    multiplies: str
    #: Multiply-adds of numbers in one of these instructions; none where elements are counted.
    lanes: int
    #: Instructions for each of them, or for an element, at most.
    limit: float


#: Elements of a loop of `examples/vector_functions.rs`: two vectors of eight.
ELEMENTS = 16
_FUNCTION = r"neon::enter::<vector_functions::Function<{}>>"
_ARITHMETIC = r"f(mul|mla|mls|add|sub)"

KERNELS = [
    Kernel("f32 product, 8 x 8", r"neon_tile::neon_tile::<8, 1, 1, false>", r"fmla", 4, 1.6),
    Kernel("f32 product, 8 x 8, rows packed", r"neon_tile::neon_tile::<8, 1, 1, true>", r"fmla", 4, 1.6),
    Kernel("f32 product, 5 x 16", r"neon_tile::neon_tile::<5, 2, 2, false>", r"fmla", 4, 1.5),
    Kernel("f32 product, 1 x 32", r"neon_tile::neon_tile::<1, 4, 4, false>", r"fmla", 4, 2.2),
    Kernel("int8 product, 5 x 16, sdot", r"kit::sdot_tile::<5>", r"sdot", 16, 1.5),
    Kernel("int8 product, 5 x 16, sudot", r"kit::sudot_tile::<5>", r"sudot", 16, 1.4),
    Kernel("int8 product, 5 x 8, 16 bits", r"kit::neon::tiles::<5>", r"sadalp", 8, 3.4),
    *(
        Kernel(name, _FUNCTION.format(i), _ARITHMETIC, 0, limit)
        for i, (name, limit) in enumerate(
            (("exp", 10), ("tanh", 11), ("erf", 24), ("sigmoid", 12), ("log", 14), ("sin", 14))
        )
    ),
]

_JUMP = re.compile(r"^(b|b\.\w+|cbn?z|tbn?z)$")


@dataclass
class Function:
    """Its name and, in order, address, instruction and operands."""

    name: str
    code: list[tuple[int, str, str]]

    def loops(self) -> Iterator[list[str]]:
        """The instructions of each loop."""
        index = {address: i for i, (address, _, _) in enumerate(self.code)}
        for i, (address, name, operands) in enumerate(self.code):
            if not _JUMP.match(name):
                continue
            target = re.search(r"([0-9a-f]+) <", operands)
            if target and int(target[1], 16) <= address and int(target[1], 16) in index:
                yield [n for _, n, _ in self.code[index[int(target[1], 16)] : i + 1]]


def functions(objdump: str, library: Path) -> Iterator[Function]:
    """The functions of a library or an object file."""
    command = [objdump, "--disassemble", "--demangle", "--no-show-raw-insn", str(library)]
    current: Function | None = None
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if head := re.match(r"^[0-9a-f]+ <(.*)>:$", line):
                if current:
                    yield current
                current = Function(head[1], [])
            elif current and (found := re.match(r"^\s*([0-9a-f]+):\s+(\S+)\s*(.*)$", line)):
                current.code.append((int(found[1], 16), found[2], found[3]))
    if current:
        yield current


def inner_loop(function: Function, multiplies: str) -> tuple[int, int] | None:
    """Multiplications and instructions of the inner loop."""
    counts = [(sum(1 for n in loop if re.fullmatch(multiplies, n)), len(loop)) for loop in function.loops()]
    # A loop around another one has its multiplications too, and is longer.
    return max(counts, key=lambda count: (count[0], -count[1]), default=None)


def row(kernel: Kernel, count: int, total: int) -> tuple[str, float]:
    """The line of a kernel, and what its limit is for."""
    if not kernel.lanes:
        each = total / ELEMENTS
        return f"| `{kernel.title}` | | | {total} | {each:.1f} an element | |", each
    each, adds = total / count, count * kernel.lanes / total
    return f"| {kernel.title} | `{kernel.multiplies}` | {count} | {total} | {each:.2f} | {adds:.1f} |", each


def main() -> int:
    """Prints a table; the number of kernels that are missing or above their limits."""
    parser = argparse.ArgumentParser()
    parser.add_argument("objdump")
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    found: dict[str, tuple[int, int]] = {}
    for function in (function for file in options.files for function in functions(options.objdump, file)):
        for kernel in KERNELS:
            if re.search(kernel.pattern, function.name) and (loop := inner_loop(function, kernel.multiplies)):
                found[kernel.title] = loop
    print("| kernel | multiplies by | in the loop | of all | for each | multiply-adds an instruction |")
    print("|---|---|---|---|---|---|")
    wrong = 0
    for kernel in KERNELS:
        count, total = found.get(kernel.title, (0, 0))
        if not count:
            print(f"| {kernel.title} | not found | | | | |")
            wrong += 1
            continue
        line, each = row(kernel, count, total)
        print(line)
        wrong += each > kernel.limit
    return wrong if options.check else 0


if __name__ == "__main__":
    raise SystemExit(main())
