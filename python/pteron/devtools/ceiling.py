"""What this machine can do at most: float32 operations and bytes a second, measured with the engine's own
fastest loops and kept in the user's cache folder.

Operations: square matrix products. Bytes: products of one row, which read a matrix once; at several sizes,
since memory that caches hold is read faster. Programs of both are written here.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import pteron
from pteron import _native
from pteron.devtools.description import MethodDescription
from pteron.devtools.program_file import new, written

#: Rows of the square products; many threads need large ones.
SIDES = (256, 512, 1024)
#: Bytes of the matrices that are read.
READ_BYTES = (1 << 20, 4 << 20, 16 << 20, 64 << 20)
#: Seconds that each program is repeated, the fastest call counts. One call reads this much at least.
SECONDS, LEAST_READ = 0.08, 16 << 20
_ROW = 4096
_VERSION = 1
_FLOAT32 = 6


@dataclass(frozen=True)
class Ceiling:
    """The most of one program: 10^9 operations and 10^9 bytes a second."""

    gflops: float
    gigabytes: float

    def least(self, flops: float, nbytes: float) -> float:
        """The least nanoseconds that work takes."""
        return max(flops / self.gflops, nbytes / self.gigabytes)

    def share(self, flops: float, nbytes: float, nanoseconds: float) -> float:
        """The least time that work could take here, as a share of the time that it took."""
        return self.least(flops, nbytes) / nanoseconds if nanoseconds > 0 else 0.0

    def to_dict(self) -> dict[str, float]:
        """Both numbers."""
        return asdict(self)


@dataclass(frozen=True)
class MachineCeiling:
    """The most of a machine with an instruction set and a number of threads.

    `gflops` are 10^9 float32 operations a second, `reads` 10^9 bytes a second by the number of bytes that are
    read again and again.
    """

    gflops: float
    reads: Mapping[int, float]

    def of(self, plan: MethodDescription) -> Ceiling:
        """That of a method: it reads memory as fast as the smallest measured size that holds all it uses."""
        wanted = working_set(plan)
        size = next((size for size in sorted(self.reads) if size >= wanted), max(self.reads))
        return Ceiling(self.gflops, self.reads[size])


def working_set(plan: MethodDescription) -> int:
    """Bytes that a call of a planned method uses: of a session, and the constants that its steps read."""
    used = (leaf for step in plan.steps for arg in step.args for leaf in plan.leaves(arg) if leaf.stored)
    constants = {json.dumps(tensor.stored, sort_keys=True): tensor.nbytes for tensor in used}
    return plan.session_bytes + sum(constants.values())


def machine_ceiling(
    num_threads: int | None = None, isa: str | None = None, *, is_fresh: bool = False
) -> MachineCeiling:
    """The ceiling of this machine: from the cache, or measured in about a second and put there.

    `num_threads` are all of the process by default, `isa` is the best instruction set. `is_fresh` measures in
    any case. Whatever else runs while it is measured makes it too low.

    Raises:
        ValueError: no such instruction set here.
    """
    runtime = pteron.Runtime.shared() if isa is None else pteron.Runtime(isa=isa)
    threads = runtime.num_threads if num_threads is None else num_threads
    path, key = _cache_file(), f"{_machine()}, {runtime.isa}, {threads} threads"
    known = _read(path)
    entry = _entry(known.get(key))
    if entry is None or is_fresh:
        entry = measure(runtime, threads)
        _keep(path, key, entry)
    return entry


def measure(runtime: pteron.Runtime, num_threads: int) -> MachineCeiling:
    """Measures the ceiling of a runtime."""
    products = [2 * side**3 / _fastest(_product(side, side, side), runtime, num_threads) for side in SIDES]
    reads = {}
    for size in READ_BYTES:
        times = max(1, LEAST_READ // size)
        content = _product(1, _ROW, size // (4 * _ROW), times)
        reads[size] = times * size / _fastest(content, runtime, num_threads)
    return MachineCeiling(max(products), reads)


def _fastest(content: tuple[bytes, Any], runtime: pteron.Runtime, num_threads: int) -> float:
    """Nanoseconds of the fastest call."""
    program, value = content
    session = pteron.load(program, runtime=runtime).load_method(num_threads=num_threads)
    call: Callable[[], Any] = lambda: session.execute([value], copy=False)  # noqa: E731
    call()
    end = time.perf_counter() + SECONDS
    found: list[int] = []
    while not found or time.perf_counter() < end:
        start = time.perf_counter_ns()
        call()
        found.append(time.perf_counter_ns() - start)
    return float(min(found))


def _product(rows: int, inner: int, columns: int, times: int = 1) -> tuple[bytes, Any]:
    """A program that multiplies its input by a constant so many times, and an input."""
    values = [_tensor((rows, inner)), _tensor((inner, columns), 1)]
    values += [_tensor((rows, columns)) for _ in range(times)]
    outputs = list(range(2, 2 + times))
    calls = [new("KernelCall", op_index=0, args=[0, 1, out, out]) for out in outputs]
    plan = new(
        "ExecutionPlan",
        name="forward",
        container_meta_type=new("ContainerMetadata", encoded_inp_str="", encoded_out_str=""),
        values=values,
        inputs=[0],
        outputs=outputs,
        chains=[
            new(
                "Chain",
                inputs=[],
                outputs=[],
                instructions=[new("Instruction", instr_args=call) for call in calls],
                stacktrace=None,
            )
        ],
        operators=[new("Operator", name="aten::mm", overload="out")],
        delegates=[],
        non_const_buffer_sizes=[0],
        non_const_buffer_device=None,
    )
    weight: Any = np.ones((inner, columns), np.float32)
    table = new(
        "Program",
        version=0,
        execution_plan=[plan],
        backend_delegate_data=[],
        named_data=[],
        constant_buffer=[new("Buffer", storage=b""), new("Buffer", storage=memoryview(weight).cast("B"))],
        mutable_data=[new("Buffer", storage=b"")],
    )
    return written(*_native.layout_program(table)), np.ones((rows, inner), np.float32)


def _tensor(shape: Sequence[int], data: int = 0) -> Any:
    tensor = new(
        "Tensor",
        scalar_type=_FLOAT32,
        storage_offset=0,
        sizes=list(shape),
        dim_order=list(range(len(shape))),
        requires_grad=False,
        layout=0,
        data_buffer_idx=data,
        allocation_info=None,
        shape_dynamism=0,
        extra_tensor_info=None,
    )
    return new("EValue", val=tensor)


def _machine() -> str:
    """What tells this machine from others that have the same home folder, and its engine from later ones."""
    model = platform.processor() or platform.machine()
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line for line in lines if line.startswith("model name")).partition(":")[2].strip()
    return f"{platform.node()}, {model}, {os.cpu_count()} processors, pteron {pteron.__version__}"


def _cache_file() -> Path:
    if sys.platform == "darwin":
        folder = Path.home() / "Library" / "Caches"
    else:
        given = os.environ.get("XDG_CACHE_HOME", "")
        # A relative path is invalid by the specification.
        folder = Path(given) if os.path.isabs(given) else Path.home() / ".cache"
    return folder / "pteron" / "ceilings.json"


def _read(path: Path) -> dict[str, Any]:
    """All entries; none where the file is absent, damaged or of another version."""
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(data, dict) or data.get("version") != _VERSION:
        return {}
    machines = data.get("machines")
    return machines if isinstance(machines, dict) else {}


def _entry(data: Any) -> MachineCeiling | None:
    """One entry, if it is whole."""
    try:
        found = MachineCeiling(
            float(data["gflops"]), {int(size): float(rate) for size, rate in data["reads"].items()}
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    numbers = [found.gflops, *found.reads.values()]
    is_whole = sorted(found.reads) == list(READ_BYTES) and all(0 < one < float("inf") for one in numbers)
    return found if is_whole else None


def _keep(path: Path, key: str, found: MachineCeiling) -> None:
    """Adds an entry. A folder that cannot be written costs the next command a second, nothing else."""
    entry = {"gflops": found.gflops, "reads": {str(size): rate for size, rate in found.reads.items()}}
    text = json.dumps({"version": _VERSION, "machines": {**_read(path), key: entry}}, indent=2)
    name = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".ceilings.")
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.replace(name, path)
    except BaseException as e:
        if name is not None:
            Path(name).unlink(missing_ok=True)
        if not isinstance(e, OSError):
            raise
