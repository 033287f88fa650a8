"""Where two runs part: the values of two programs, or of one under two settings, with the error of each."""

from __future__ import annotations

import hashlib
import math
import tempfile
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from pteron._native import Program, TracedStep
from pteron.devtools.callable_module import make_callable
from pteron.devtools.description import MethodDescription, Step, describe_plan
from pteron.devtools.sources import Source, Sources

#: A call of the plan, which of its results, and how often that was written before.
Key = tuple[int, int, int]
#: In an archive: the digest of the calls that its values belong to.
CALLS_KEY = "pteron.calls"


@dataclass(frozen=True)
class Errors:
    """How far `ours` is from `theirs`, element by element.

    Places where both are NaN or the same infinity agree. `relative` is over the largest element of `theirs`,
    `snr` in decibels, `ulp` in units in the last place of the narrower of NumPy's floating types (0 for
    others). All are infinite where one side is not finite and the other differs; `cosine` is 0 then.
    """

    max_abs: float
    relative: float
    cosine: float
    snr: float
    ulp: float


@dataclass(frozen=True)
class ComparedValue:
    """One value of both runs, in the order in which our run writes them."""

    value: int
    round: int
    step: int
    kernel: str
    operator: str
    source: Source
    dtype: str
    shape: tuple[int, ...]
    errors: Errors


@dataclass(frozen=True)
class Comparison:
    """The values that both runs have, and the outputs.

    `are_aligned`: the programs have the same instructions, so that values could be compared and not outputs
    alone.
    """

    are_aligned: bool
    values: tuple[ComparedValue, ...]
    outputs: dict[str, Errors]

    def first_divergence(self, rtol: float) -> ComparedValue | None:
        """The first value whose error exceeds `rtol` of the largest element; None where none does."""
        return next((value for value in self.values if not value.errors.relative <= rtol), None)

    def worst(self, most: int) -> list[ComparedValue]:
        """The values with the largest relative errors."""
        return sorted(self.values, key=lambda value: -value.errors.relative)[:most]


def errors(ours: npt.NDArray[Any], theirs: npt.NDArray[Any]) -> Errors:
    """The errors of one array.

    Raises:
        ValueError: the shapes differ.
    """
    if ours.shape != theirs.shape:
        raise ValueError(f"shapes {list(ours.shape)} and {list(theirs.shape)} cannot be compared")
    kind = np.complex128 if "c" in (ours.dtype.kind, theirs.dtype.kind) else np.float64
    a, b = ours.astype(kind).ravel(), theirs.astype(kind).ravel()
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return Errors(0.0, 0.0, 1.0, math.inf, 0.0)
    if not (np.isfinite(a[~same]).all() and np.isfinite(b[~same]).all()):
        return Errors(math.inf, math.inf, 0.0, -math.inf, math.inf)
    finite = np.isfinite(a) & np.isfinite(b)
    a, b = a[finite], b[finite]
    difference = np.abs(a - b)
    largest = float(np.abs(b).max())
    noise, signal = float((difference**2).sum()), float((np.abs(b) ** 2).sum())
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    return Errors(
        max_abs=float(difference.max()),
        relative=float(difference.max()) / largest if largest else math.inf,
        cosine=float(np.vdot(a, b).real) / norms if norms else 0.0,
        snr=10 * math.log10(signal / noise) if signal and noise else -math.inf,
        ulp=_ulp(difference, b, ours.dtype, theirs.dtype),
    )


def _ulp(difference: Any, reference: Any, ours: np.dtype[Any], theirs: np.dtype[Any]) -> float:
    floats = [dtype for dtype in (ours, theirs) if dtype.kind == "f"]
    if len(floats) < 2:
        return 0.0
    narrow = min(floats, key=lambda dtype: dtype.itemsize)
    spacing = np.spacing(np.abs(reference).astype(narrow)).astype(np.float64)
    with np.errstate(over="ignore"):
        return float((difference / spacing).max())


def compare(
    ours: Program,
    theirs: Program,
    inputs: Iterable[Any],
    method: str = "forward",
    *,
    num_threads: Sequence[int | None] = (None, None),
    done: Callable[[float], None] = lambda _: None,
) -> Comparison:
    """Runs both on the same inputs and compares outputs, and every value that both write where their
    instructions are the same. Values of `theirs` are kept in a temporary folder, not in memory. What a
    fused step writes is what the last of its calls does. `done` is told the share of all steps that ran.

    `theirs` with `Runtime(disabled_rules=["all"])` writes every value of the file: what the rewrites of
    `ours` keep is then compared.

    Raises:
        PteronError: those of loading and calling the methods.
        ValueError: outputs of different shapes.
    """
    arguments = list(inputs)
    plans = describe_plan(ours, method), describe_plan(theirs, method)
    are_aligned = _calls(plans[0]) == _calls(plans[1])
    with tempfile.TemporaryDirectory(prefix="pteron-compare-") as folder:
        store = _Store(ValueFiles(Path(folder)), lambda share: done(share / 2))
        reference = _run(theirs, plans[1], arguments, num_threads[1], store if are_aligned else None)
        watch = _Compared(store, lambda share: done((1 + share) / 2)) if are_aligned else None
        result = _run(ours, plans[0], arguments, num_threads[0], watch)
        values = () if watch is None else tuple(_located(plans[0], Sources(ours, method), watch))
    specs = ours.outputs(method)
    outputs = {
        spec.name: errors(np.asarray(a), np.asarray(b))
        for spec, a, b in zip(specs, result, reference, strict=True)
        if a is not None
    }
    return Comparison(are_aligned, values, outputs)


def save_values(
    file: IO[bytes],
    program: Program,
    inputs: Iterable[Any],
    method: str = "forward",
    *,
    num_threads: int | None = None,
    done: Callable[[float], None] = lambda _: None,
) -> None:
    """Writes the outputs of a run, by name, and every value that it writes as an .npz file, one after the
    other: what `compare_saved` takes, on another machine or with a later version. `done` is told the share of
    all steps that ran.

    Raises:
        PteronError: those of loading and calling the method.
    """
    plan = describe_plan(program, method)
    with zipfile.ZipFile(file, "w") as archive:
        files = _Archive(archive)
        results = _run(program, plan, list(inputs), num_threads, _Store(files, done))
        for spec, result in zip(program.outputs(method), results, strict=True):
            if result is not None:
                files.put(spec.name, np.asarray(result))
        files.put(CALLS_KEY, np.frombuffer(_digest(plan), np.uint8))


def compare_saved(
    program: Program,
    file: IO[bytes],
    inputs: Iterable[Any],
    method: str = "forward",
    *,
    num_threads: int | None = None,
    done: Callable[[float], None] = lambda _: None,
) -> Comparison:
    """Runs the program and compares with an .npz file: outputs by name, and, where `save_values` wrote it for
    the same instructions, every value. `done` is told the share of all steps that ran.

    Raises:
        PteronError: those of loading and calling the method.
        ValueError: an array of another shape, or no output is in the file.
        zipfile.BadZipFile: it is no .npz file, or damaged.
    """
    plan = describe_plan(program, method)
    with zipfile.ZipFile(file) as archive:
        files = _Archive(archive)
        calls = files.get(CALLS_KEY)
        is_aligned = calls is not None and calls.tobytes() == _digest(plan)
        watch = _Compared(_Store(files), done) if is_aligned else None
        results = _run(program, plan, list(inputs), num_threads, watch)
        outputs = {}
        for spec, result in zip(program.outputs(method), results, strict=True):
            expected = files.get(spec.name)
            if expected is not None and result is not None:
                outputs[spec.name] = errors(np.asarray(result), expected)
        values = () if watch is None else tuple(_located(plan, Sources(program, method), watch))
    if not outputs:
        names = ", ".join(spec.name for spec in program.outputs(method))
        raise ValueError(f"no array has the name of an output: {names}")
    return Comparison(is_aligned, values, outputs)


def _digest(plan: MethodDescription) -> bytes:
    return hashlib.sha256(repr(_calls(plan)).encode()).digest()


def _calls(plan: MethodDescription) -> Any:
    """The calls of a plan, delegates opened: what must be the same in both runs."""
    return [(call.operator, call.delegate, call.args) for call in plan.calls]


class _Values(ABC):
    """A tracer that hands on each value with the call that writes it."""

    def __init__(self, done: Callable[[float], None]) -> None:
        self.steps: tuple[Step, ...] = ()
        self._done, self._count = done, 0
        self._rounds: dict[tuple[int, int], int] = {}
        self._written: tuple[int, int] = (-1, 0)

    def step_begin(self, step: TracedStep) -> None:
        self._written = (step.index, 0)
        # Steps of loops run again, so that this may be too much.
        self._done(min(self._count / len(self.steps), 1.0))
        self._count += 1

    def value(self, step: TracedStep, position: int, value: Any) -> None:
        calls = self.steps[step.index].calls
        _, ordinal = self._written
        self._written = (step.index, ordinal + 1)
        if not calls or (ordinal > 0 and len(calls) > 1):
            return  # a copy of load's own, or a further result of a fused step: nobody says of which call
        place = calls[-1], ordinal
        times = self._rounds.get(place, 0)
        self._rounds[place] = times + 1
        self.take((*place, times), step, np.asarray(value))

    @abstractmethod
    def take(self, key: Key, step: TracedStep, array: npt.NDArray[Any]) -> None:
        """What is done with a value."""


class ValueFiles:
    """Arrays as files of a folder, by name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, name: str, array: npt.NDArray[Any]) -> None:
        """Keeps an array. NumPy files have no bfloat16 and float8: float32 holds all of their numbers."""
        np.save(self._folder / f"{name}.npy", _plain(array), allow_pickle=False)

    def get(self, name: str) -> npt.NDArray[Any] | None:
        """An array, mapped; None where there is none."""
        path = self._folder / f"{name}.npy"
        return np.load(path, mmap_mode="r", allow_pickle=False) if path.exists() else None


class _Archive:
    """Arrays as members of an .npz file, by name: written one after the other, read when asked for."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._names = set(archive.namelist())

    def put(self, name: str, array: npt.NDArray[Any]) -> None:
        with self._archive.open(f"{name}.npy", "w", force_zip64=True) as member:
            np.lib.format.write_array(member, np.asanyarray(_plain(array)), allow_pickle=False)

    def get(self, name: str) -> npt.NDArray[Any] | None:
        if f"{name}.npy" not in self._names:
            return None
        with self._archive.open(f"{name}.npy") as member:
            array: npt.NDArray[Any] = np.lib.format.read_array(member, allow_pickle=False)
            return array


def _plain(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return array if array.dtype.kind in "biufc" else array.astype(np.float32)


class _Store(_Values):
    """Keeps values."""

    def __init__(self, files: ValueFiles | _Archive, done: Callable[[float], None] = lambda _: None) -> None:
        super().__init__(done)
        self._files = files

    def take(self, key: Key, step: TracedStep, array: npt.NDArray[Any]) -> None:
        self._files.put(_name(key), array)

    def get(self, key: Key) -> npt.NDArray[Any] | None:
        return self._files.get(_name(key))


def _name(key: Key) -> str:
    """In archives these names are beside those of outputs."""
    return f"pteron.value.{key[0]}-{key[1]}-{key[2]}"


class _Compared(_Values):
    """Compares values with those of a store."""

    def __init__(self, store: _Store, done: Callable[[float], None]) -> None:
        super().__init__(done)
        self._store = store
        self.found: list[tuple[Key, int, str, tuple[int, ...], Errors]] = []

    def take(self, key: Key, step: TracedStep, array: npt.NDArray[Any]) -> None:
        other = self._store.get(key)
        if other is not None and other.shape == array.shape:
            self.found.append((key, step.index, str(array.dtype), array.shape, errors(array, other)))


def _run(
    program: Program,
    plan: MethodDescription,
    arguments: list[Any],
    threads: int | None,
    tracer: _Values | None,
) -> list[Any]:
    session = program.load_method(plan.name, num_threads=threads, seed=0)
    if tracer is not None:
        tracer.steps = plan.steps
    return session.execute(arguments, tracer=tracer)


def _located(plan: MethodDescription, sources: Sources, watch: _Compared) -> Iterator[ComparedValue]:
    for (call, _, times), at, dtype, shape, found in watch.found:
        step, last = plan.steps[at], plan.calls[call]
        places = sources.of(step)
        yield ComparedValue(
            value=last.args[-1] if last.args else -1,
            round=times,
            step=at,
            kernel=step.name,
            operator=last.operator or step.name,
            source=places[-1] if places else Source(),
            dtype=dtype,
            shape=shape,
            errors=found,
        )


make_callable(__name__)
