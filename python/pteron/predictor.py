"""`pteron.Predictor`: a method of a program as an object that worker processes are given."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pteron import _native, program_cache
from pteron.errors import DeadlineExceeded, InputError, InputTypeError
from pteron.metrics import CallCounts, Counters, logger
from pteron.recipe import Recipe, label_of, recipe_of, recipe_of_arguments
from pteron.shown_names import shown_names
from pteron.thread_cap import processors, threads_of_environment

if TYPE_CHECKING:
    import numpy.typing as npt

    from pteron._native import Limits, Program, ValueSpec, _File
    from pteron.batching import Batching, Lengths

__all__ = ["Predictor"]


@dataclass(frozen=True)
class _Settings:
    """What the caller chose; the same in every process."""

    method: str
    outputs: tuple[str, ...] | None
    batched: tuple[str, ...] | None
    batch_size: int | None
    buckets: Mapping[str, Sequence[int]] | Sequence[int]
    pad_values: Mapping[str, Any]
    num_threads: int | None
    max_calls: int | None
    warm_up: bool


class Predictor:
    """A method of a program: dict of arrays by input name in, dict of arrays by output name out.

    It can be pickled and sent to worker processes (spawned, forked, of Ray, Spark, Dask and others). Each
    process loads the program when it is first called there, once for all predictors of the same file, and any
    number of threads may call. Needs NumPy alone.

    The first dimension of the inputs counts rows where the method has a batch dimension: one that varies and
        is the
    first of the outputs too, or one fixed number in all inputs and outputs. A call may then have any number
    of rows: they are cut into batches that the method takes, a batch that is too small is filled up with
        copies of its last
    row, and the results are joined. **Rows must not depend on each other**, as those of a batch do not and
    those of
    a sequence do: `batched=()` is for a method whose first dimension is none.

    Args:
        source: path of a `.pte` file, which every process has to have (size and SHA-256 are compared); its
            bytes, which travel in the pickle; or a program that `pteron.load` gave.
        method: its name. One that keeps state between calls is refused.
        data, mmap, limits: those of `pteron.load`; not with a program.
        outputs: names of the wanted outputs; None: all.
        batched: names of the inputs whose first dimension is the batch; others are given to every batch
            whole. None: found from the program, `()`: there is no batch, each call is one run.
        batch_size: most rows of a batch; None: what the program allows.
        buckets: the numbers of rows that are run, such as `(1, 8, 32)`; a batch is filled up to the next one.
            Or a dict from dimensions of the program (`predictor.inputs`) to extents, for sequences too.
        pad_values: by input name, what fills up its dimensions in `buckets` other than the batch.
        num_threads: most threads of a call; None: `PTERON_NUM_THREADS`, else `OMP_NUM_THREADS`, as the
            process has them when it loads the program, else all processors.
        max_calls: most calls that run at once, others wait: each needs the memory of a session. None: one for
            each processor of the process.
        warm_up: run rows of zeros in each number of rows when the program is loaded.

    Raises:
        FileNotFoundError: there is no such file.
        InputError: an argument that no program could take.
    """

    def __init__(
        self,
        source: _File | Program,
        method: str = "forward",
        *,
        data: Any = None,
        mmap: bool = True,
        limits: Limits | None = None,
        outputs: Collection[str] | None = None,
        batched: Collection[str] | None = None,
        batch_size: int | None = None,
        buckets: Mapping[str, Sequence[int]] | Sequence[int] = (),
        pad_values: Mapping[str, Any] | None = None,
        num_threads: int | None = None,
        max_calls: int | None = None,
        warm_up: bool = False,
    ) -> None:
        for name, count in (
            ("batch_size", batch_size),
            ("num_threads", num_threads),
            ("max_calls", max_calls),
        ):
            if count is not None and count < 1:
                raise InputError(
                    "a predictor needs at least one",
                    argument=name,
                    expected="at least 1",
                    got=str(count),
                    hint="leave it out for the default",
                )
        self._settings = _Settings(
            method,
            None if outputs is None else _names("outputs", outputs),
            None if batched is None else _names("batched", batched),
            batch_size,
            dict(buckets) if isinstance(buckets, Mapping) else tuple(buckets),
            dict(pad_values or {}),
            num_threads,
            max_calls,
            warm_up,
        )
        self._program: Program | None = None
        if isinstance(source, _native.Program):
            self._program = source
            self._recipe: Recipe | None = None
        else:
            self._recipe = recipe_of_arguments(source, data, mmap, limits)
        self._loaded: _Loaded | None = None

    def __call__(
        self, inputs: Mapping[str, npt.ArrayLike], *, deadline: float | None = None
    ) -> dict[str, npt.NDArray[Any]]:
        """Runs the method on all rows.

        Args:
            inputs: arrays by the names of `predictor.inputs`, and the other values that the method takes.
            deadline: seconds from now, after which the call stops with DeadlineExceeded.

        Returns:
            Arrays by output name, which own their memory. Outputs that share a name, or have none, are called
            `output0`, `output1` by their position.

        Raises:
            InputError, InputTypeError: inputs that do not fit; the text names the input.
            FileNotFoundError, ProgramError, ExternalDataError: the file is not there, or not the one that the
                predictor was made with.
            PteronError: what `Program.execute` raises.
        """
        return self._here().call(inputs, deadline)

    def run_rows(
        self,
        rows: Sequence[Mapping[str, npt.ArrayLike]],
        *,
        shared: Mapping[str, npt.ArrayLike] | None = None,
        deadline: float | None = None,
    ) -> list[dict[str, npt.NDArray[Any]]]:
        """Runs rows that come one by one, in batches; they may have different lengths where `buckets` names
        the dimension.

        Args:
            rows: for each row a dict from the inputs that have a batch dimension to arrays without it.
            shared: the other inputs, the same for all rows.
            deadline: seconds from now, after which the call stops with DeadlineExceeded.

        Returns:
            For each row a dict from output name to an array without the batch dimension.

        Raises:
            InputError: the method has no batch dimension, or a row has other inputs. What a call raises.
        """
        return self._here().call_rows(rows, shared or {}, deadline)

    def load(self) -> Predictor:
        """Loads the program into this process, if it is not yet, and warms it up where that was asked for.

        Called in a parent process, its forked children share what was loaded. Gives the predictor.
        """
        self._here()
        return self

    def unload(self) -> None:
        """Lets go of the program in this process: its memory is free once no other holder is left. The next
        call loads it again.
        """
        loaded, self._loaded = self._loaded, None
        if loaded is not None and self._recipe is not None:
            program_cache.forget(loaded.program)

    @property
    def inputs(self) -> tuple[ValueSpec, ...]:
        """What the method takes. Loads the program."""
        return self._here().inputs

    @property
    def outputs(self) -> tuple[ValueSpec, ...]:
        """What calls give, those that were not asked for left out. Loads the program."""
        return self._here().outputs

    @property
    def batching(self) -> Batching | None:
        """The batch dimension: its inputs, the least and most rows of a run; None where each call is one run.
        Loads the program.
        """
        return self._here().batching

    @property
    def num_threads(self) -> int | None:
        """Most threads of a call in this process; None: all of the pool. Loads the program."""
        return self._here().num_threads

    def counters(self) -> Counters:
        """What the calls in this process came to; `pteron.metrics` has those of all predictors."""
        loaded = self._loaded
        return Counters() if loaded is None or loaded.pid != os.getpid() else loaded.counts.read()

    def _here(self) -> _Loaded:
        """The state of this process. In a forked child it is made anew: a thread of the parent may hold its
        locks.
        """
        loaded = self._loaded
        if loaded is None or loaded.pid != os.getpid():
            with program_cache.loading():
                loaded = self._loaded
                if loaded is None or loaded.pid != os.getpid():
                    label = label_of(self._program or self._recipe)
                    loaded = _Loaded(self._load_program(), label, self._settings)
                    if self._settings.warm_up:
                        loaded.warm_up()
                    self._loaded = loaded
        return loaded

    def _load_program(self) -> Program:
        if self._program is not None:
            return self._program
        if self._loaded is not None:
            return self._loaded.program
        assert self._recipe is not None
        begun = time.perf_counter()
        program = program_cache.program_of(self._recipe)
        logger().info(
            "%s loaded (%.3f ms)",
            label_of(self._program or self._recipe),
            (time.perf_counter() - begun) * 1000,
        )
        return program

    def __getstate__(self) -> dict[str, Any]:
        recipe = self._recipe if self._program is None else recipe_of(self._program)
        return {"recipe": recipe, "settings": self._settings}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._recipe, self._settings = state["recipe"], state["settings"]
        self._program = self._loaded = None

    def __repr__(self) -> str:
        return f"pteron.Predictor({label_of(self._program or self._recipe)}, {self._settings.method!r})"


class _Loaded:
    """A predictor in one process."""

    def __init__(self, program: Program, label: str, settings: _Settings) -> None:
        from pteron.batching import batching_of, lengths_of  # imports NumPy

        self.pid = os.getpid()
        self.program = program
        self._method = settings.method
        self.inputs = program.inputs(settings.method)
        kept = program.buffers(settings.method)
        if kept:
            raise InputError(
                "a predictor cannot run a method that keeps state between calls",
                method=settings.method,
                got=f"the buffer {shown_names([kept[0].name])}",
                hint="use pteron.load and program.load_method, a session for each conversation or stream",
            )
        self.names, self._positions, self.outputs = _wanted(
            program.outputs(settings.method), settings.outputs
        )
        self.batching = batching_of(
            self.inputs, self.outputs, settings.batched, settings.batch_size, settings.buckets
        )
        symbol = None if self.batching is None else self.batching.symbol
        others = settings.buckets if isinstance(settings.buckets, Mapping) else {}
        others = {name: sizes for name, sizes in others.items() if name != symbol}
        self._lengths: list[Lengths] = lengths_of(self.inputs, self.outputs, others, settings.pad_values)
        self._filled = {name for lengths in self._lengths for name, _, _ in lengths.inputs}
        self.num_threads = settings.num_threads or threads_of_environment()
        self._gate = threading.BoundedSemaphore(settings.max_calls or processors())
        self.counts = CallCounts(f"{label}, {settings.method}")
        self._fixed: dict[str, Any] = {
            spec.name: spec.value for spec in self.inputs if spec.value is not None
        }
        self._fixed |= {spec.name: None for spec in self.inputs if spec.kind == "none"}

    def call(self, inputs: Mapping[str, Any], deadline: float | None) -> dict[str, Any]:
        """A call, counted."""
        sums = {"batches": 0, "rows": 0, "padded_rows": 0}
        result: dict[str, Any] = self.counts.counted(lambda: self._call(inputs, deadline, sums), lambda: sums)
        return result

    def call_rows(
        self, rows: Sequence[Mapping[str, Any]], shared: Mapping[str, Any], deadline: float | None
    ) -> list[dict[str, Any]]:
        """Single rows, in as few calls as their shapes allow."""
        from pteron.single_rows import run_rows

        ends = None if deadline is None else time.monotonic() + deadline

        def call(joined: dict[str, Any]) -> dict[str, Any]:
            left = None if ends is None else max(ends - time.monotonic(), 0.0)
            return self.call({**shared, **joined}, left)

        return run_rows(rows, self.batching, self._lengths, self.names, call)

    def warm_up(self) -> None:
        """Runs zeros in every number of rows that is run, at the largest of the other extents; not
        counted.
        """
        import numpy as np

        for rows in self.batching.shapes() if self.batching is not None else (1,):
            inputs: dict[str, Any] = dict(self._fixed)
            for spec in self.inputs:
                if spec.kind == "tensor":
                    shape = [dim if isinstance(dim, int) else dim.max for dim in spec.shape or ()]
                    if self.batching is not None and spec.name in self.batching.inputs:
                        shape[0] = rows
                    inputs[spec.name] = np.zeros(shape, np.dtype(str(spec.dtype)))
                elif spec.range is not None:
                    inputs[spec.name] = spec.range[0]
            self._call(inputs, None, {"batches": 0, "rows": 0, "padded_rows": 0})

    def _call(
        self, inputs: Mapping[str, Any], deadline: float | None, sums: dict[str, int]
    ) -> dict[str, Any]:
        ends = None if deadline is None else time.monotonic() + deadline
        given = {**self._fixed, **self._checked(inputs)}
        arrays = {name: _array(name, given[name]) for name in self._array_names(given)}
        extents = [lengths.extent_of(arrays) for lengths in self._lengths]
        for lengths in self._lengths:
            arrays = lengths.filled(arrays)
        given.update(arrays)
        if not self._gate.acquire(timeout=None if ends is None else max(ends - time.monotonic(), 0)):
            raise DeadlineExceeded(
                "the deadline passed while other calls of the predictor ran",
                method=self._method,
                hint="max_calls= sets how many run at once",
            )
        try:
            results = self._run(given, ends, sums)
        finally:
            self._gate.release()
        for lengths, extent in zip(self._lengths, extents, strict=True):
            lengths.cut_back(results, extent)
        return dict(zip(self.names, results, strict=True))

    def _run(self, given: dict[str, Any], ends: float | None, sums: dict[str, int]) -> list[Any]:
        """All rows, batch after batch; the wanted outputs in order."""
        from pteron.batching import Joined, cut, no_rows

        if self.batching is None:
            sums["batches"] = sums["rows"] = 1
            return self._execute(given, ends)
        rows = self.batching.rows_of(given)
        if not rows:
            return [no_rows(self.inputs, given, spec) for spec in self.outputs]
        joined = [Joined(name, rows) for name in self.names]
        padded = 0
        for batch in self.batching.batches(rows):
            cuts = {name: cut(given[name], batch) for name in self.batching.inputs}
            for output, result in zip(joined, self._execute({**given, **cuts}, ends), strict=True):
                output.add(result, batch)
            sums["batches"] += 1
            padded += batch.padded
        sums["rows"], sums["padded_rows"] = rows, padded
        return [output.whole() for output in joined]

    def _execute(self, given: dict[str, Any], ends: float | None) -> list[Any]:
        deadline = None if ends is None else max(ends - time.monotonic(), 0.0)
        results = self.program.execute(
            self._method,
            given,  # the flat inputs by name
            num_threads=self.num_threads,
            deadline=deadline,
        )
        return [results[position] for position in self._positions]

    def _checked(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """The inputs, whose names the method has, and none of which is missing."""
        if not isinstance(inputs, Mapping):
            raise InputTypeError(
                "a predictor takes a dict of arrays by input name",
                argument="inputs",
                expected=f"a dict with {shown_names(spec.name for spec in self.inputs)}",
                got=type(inputs).__name__,
                hint="predictor.inputs has the names",
            )
        names = [spec.name for spec in self.inputs]
        for name in inputs:
            if name not in names:
                raise InputError(
                    f"the method has no input {shown_names([str(name)])!r}",
                    argument=shown_names([str(name)]),
                    hint=f"its inputs are {shown_names(names)}",
                )
        for name in names:
            if name not in inputs and name not in self._fixed:
                raise InputError(
                    f"the input {shown_names([name])!r} is missing",
                    argument=shown_names([name]),
                    hint=f"the method takes {shown_names(names)}",
                )
        return inputs

    def _array_names(self, given: Mapping[str, Any]) -> list[str]:
        """The inputs whose rows are cut or filled up, and that are therefore turned into NumPy arrays."""
        batched = set() if self.batching is None else set(self.batching.inputs)
        return [name for name in given if name in batched or name in self._filled]


def _array(name: str, value: Any) -> Any:
    import numpy as np

    try:
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputTypeError(
            f"the input {shown_names([name])!r} cannot be turned into a NumPy array",
            argument=shown_names([name]),
            got=type(value).__name__,
            hint="give a NumPy array of the dtype that the method takes",
        ) from error


def _wanted(
    outputs: Sequence[ValueSpec], wanted: tuple[str, ...] | None
) -> tuple[list[str], list[int], tuple[ValueSpec, ...]]:
    """Names, positions and specs of the outputs that calls give."""
    stated = [spec.name for spec in outputs]
    names = [
        name if name and stated.count(name) == 1 else f"output{position}"
        for position, name in enumerate(stated)
    ]
    if wanted is None:
        return names, list(range(len(names))), tuple(outputs)
    for name in wanted:
        if name not in names:
            raise InputError(
                f"the method has no output {shown_names([name])!r}",
                argument=name,
                hint=f"its outputs are {shown_names(names)}",
            )
    positions = [names.index(name) for name in wanted]
    return list(wanted), positions, tuple(outputs[position] for position in positions)


def _names(argument: str, names: Collection[str]) -> tuple[str, ...]:
    if isinstance(names, str):
        raise InputTypeError(
            "names are given as a list",
            argument=argument,
            expected="a list of names",
            got="a text",
            hint=f"{argument}=['name'] for a single one",
        )
    return tuple(names)
