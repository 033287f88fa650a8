"""Rows of a predictor's inputs as the batches that a method takes: how many, what fills them up, how results
join.

The first dimension of the batched inputs counts rows. Rows must not depend on each other: a call with many
rows is cut into batches, and a batch that is too small is filled up with copies of its last row, whose
results are dropped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pteron._native import DimRange, ValueSpec
from pteron.errors import InputError, InputTypeError
from pteron.shown_names import shown_names

__all__ = ["Batch", "Batching", "Lengths", "batching_of", "lengths_of"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class _Rows:
    """What the first dimension of a tensor may be; equal ones are the same dimension."""

    least: int
    most: int
    symbol: str | None

    @property
    def varies(self) -> bool:
        return self.least != self.most or self.symbol is not None

    def __str__(self) -> str:
        return f"{self.least} to {self.most} rows" if self.varies else f"{self.most} rows"


@dataclass(frozen=True)
class Batch:
    """Rows `start` to `stop` of a call, run as `size` rows."""

    start: int
    stop: int
    size: int

    @property
    def padded(self) -> int:
        """Rows that fill the batch up."""
        return self.size - (self.stop - self.start)


@dataclass(frozen=True)
class Batching:
    """The batch dimension of a method.

    Attributes:
        inputs: names of the inputs that have it; others are the same for all batches.
        least, most: rows that one run takes.
        sizes: the numbers of rows that are run, ascending; empty: any from `least` to `most`.
        symbol: its name in the program, None for a fixed one.
    """

    inputs: tuple[str, ...]
    least: int
    most: int
    sizes: tuple[int, ...] = ()
    symbol: str | None = None

    def batches(self, rows: int) -> Iterator[Batch]:
        """Cuts rows into batches, full ones first."""
        for start in range(0, rows, self.most):
            stop = min(start + self.most, rows)
            yield Batch(start, stop, self._size_for(stop - start))

    def shapes(self) -> tuple[int, ...]:
        """The numbers of rows for a warm-up: every one that is run, or the smallest and the largest."""
        return self.sizes or tuple(sorted({self.least, self.most}))

    def rows_of(self, arrays: Mapping[str, Array]) -> int:
        """The number of rows that the batched inputs have.

        Raises:
            InputError: they have different numbers of rows, or an input has no dimension.
        """
        counted: dict[str, int] = {}
        for name in self.inputs:
            if not arrays[name].ndim:
                raise InputError(
                    f"the batched input {shown_names([name])!r} has no rows",
                    argument=shown_names([name]),
                    expected="an array with a dimension for rows in front",
                    got="a single number",
                    hint="put it into an array, or name the inputs that have rows with batched=",
                )
            counted[name] = arrays[name].shape[0]
        first, rows = next(iter(counted.items()))
        for name, count in counted.items():
            if count != rows:
                raise InputError(
                    f"the input {shown_names([name])!r} has another number of rows than the one before it",
                    argument=shown_names([name]),
                    expected=f"{rows} rows, as {shown_names([first])} has",
                    got=f"{count} rows",
                    hint="batched= names the inputs that have rows; others are given to every batch whole",
                )
        return rows

    def _size_for(self, rows: int) -> int:
        return next((size for size in self.sizes if size >= rows), max(rows, self.least))


def cut(array: Array, batch: Batch) -> Array:
    """The rows of a batch, filled up with copies of the last one; a view where nothing is to be filled up."""
    rows = array[batch.start : batch.stop]
    if not batch.padded:
        return rows
    return np.concatenate([rows, np.repeat(rows[-1:], batch.padded, axis=0)])


def batching_of(
    inputs: Sequence[ValueSpec],
    outputs: Sequence[ValueSpec],
    batched: Collection[str] | None,
    batch_size: int | None,
    sizes: Mapping[str, Sequence[int]] | Sequence[int],
) -> Batching | None:
    """The batch dimension of a method; None where it has none, so that every call is one run.

    `batched` None: it is looked for. A method has one where the first dimension of inputs varies, or is of
    one fixed extent in all of them, and is the first dimension of every output too; at least one of these
    inputs has a second dimension, since a single dimension is a sequence more often than it is a batch.

    Raises:
        InputError: the inputs in `batched` have no common batch dimension, or an output lacks it; sizes or
            `batch_size` that the dimension does not allow, or where there is no such dimension.
    """
    found = _found(inputs, outputs) if batched is None else _named(inputs, outputs, tuple(batched))
    if found is None:
        if batch_size is not None or not (isinstance(sizes, Mapping) or not sizes):
            raise InputError(
                "the method has no batch dimension",
                argument="buckets" if batch_size is None else "batch_size",
                hint="batched= names the inputs whose first dimension is the batch",
            )
        return None
    names, rows = found
    wanted = sizes.get(rows.symbol or "", ()) if isinstance(sizes, Mapping) else sizes
    return _sized(Batching(names, rows.least, rows.most, symbol=rows.symbol), batch_size, wanted)


def _sized(batching: Batching, batch_size: int | None, sizes: Sequence[int]) -> Batching:
    """With the sizes that a caller asks for, which have to lie within those of the method."""
    for argument, given in (("batch_size", () if batch_size is None else (batch_size,)), ("buckets", sizes)):
        for size in given:
            if not batching.least <= size <= batching.most:
                raise InputError(
                    "the method does not run this number of rows",
                    argument=argument,
                    expected=f"from {batching.least} to {batching.most}",
                    got=str(size),
                    hint="export the model with a range of rows that has it",
                )
    most = batching.most if batch_size is None else batch_size
    kept = tuple(sorted({size for size in sizes if size <= most}))
    return Batching(batching.inputs, batching.least, kept[-1] if kept else most, kept, batching.symbol)


def _rows(spec: ValueSpec) -> _Rows | None:
    """The first dimension; None for what has none, and for one that is computed from others."""
    if not spec.shape:
        return None
    first = spec.shape[0]
    if isinstance(first, int):
        return _Rows(first, first, None) if first else None
    if first.expression is not None and first.symbol is None:
        return None
    return _Rows(max(first.min, 1), first.max, first.symbol)


def _found(inputs: Sequence[ValueSpec], outputs: Sequence[ValueSpec]) -> tuple[tuple[str, ...], _Rows] | None:
    tensors = [spec for spec in inputs if spec.kind == "tensor"]
    varying = [spec for spec in tensors if spec.shape and isinstance(spec.shape[0], DimRange)]
    candidates = varying or tensors
    dimensions = {_rows(spec) for spec in candidates}
    if len(dimensions) != 1 or not any(len(spec.shape or ()) > 1 for spec in candidates):
        return None
    (rows,) = dimensions
    if rows is None or not outputs or any(_rows(spec) != rows for spec in outputs):
        return None
    return tuple(spec.name for spec in candidates), rows


def _named(
    inputs: Sequence[ValueSpec], outputs: Sequence[ValueSpec], names: tuple[str, ...]
) -> tuple[tuple[str, ...], _Rows] | None:
    if not names:
        return None
    by_name = {spec.name: spec for spec in inputs}
    first: _Rows | None = None
    for name in names:
        if name not in by_name:
            raise InputError(
                f"the method has no input {shown_names([name])!r}",
                argument=shown_names([name]),
                hint=f"its inputs are {shown_names(by_name)}",
            )
        rows = _rows(by_name[name])
        if rows is None or (first is not None and rows != first):
            raise InputError(
                f"the input {shown_names([name])!r} of batched= has no batch dimension, or another one "
                "than that before it",
                argument=shown_names([name]),
                expected="a first dimension that is the same for all, and not computed from others",
                got=str(by_name[name]),
                hint="inputs that are the same for all rows are left out of batched=",
            )
        first = rows
    for spec in outputs:
        if _rows(spec) != first:
            raise InputError(
                f"the output {shown_names([spec.name])!r} has no row for each row of the inputs, so that "
                "batches cannot be joined",
                argument=shown_names([spec.name]),
                expected=f"a first dimension of {first}",
                got=str(spec),
                hint="outputs= names the outputs that you want; batched=() is one run in each call",
            )
    assert first is not None
    return names, first


@dataclass(frozen=True)
class Lengths:
    """Another dimension than the batch that is filled up to one of a few extents, such as that of a sequence.

    Attributes:
        symbol: its name in the program.
        sizes: the extents that are run, ascending; a longer one runs as it is.
        inputs: the axes of inputs that have it, with the value that fills them up.
        outputs: the axes of outputs, by their position, that have it and are cut back.
    """

    symbol: str
    sizes: tuple[int, ...]
    inputs: tuple[tuple[str, int, Any], ...]
    outputs: tuple[tuple[int, int], ...]

    def extent_of(self, arrays: Mapping[str, Array]) -> int:
        """What a call has."""
        name, axis, _ = self.inputs[0]
        array = arrays[name]
        return array.shape[axis] if axis < array.ndim else 0

    def filled(self, arrays: dict[str, Array]) -> dict[str, Array]:
        """The arrays at the next extent that is run."""
        extent = self.extent_of(arrays)
        target = next((size for size in self.sizes if size >= extent), extent)
        if target == extent:
            return arrays
        filled = dict(arrays)
        for name, axis, value in self.inputs:
            array = filled[name]
            if axis < array.ndim:
                widths = [(0, target - array.shape[axis] if i == axis else 0) for i in range(array.ndim)]
                if min(map(min, widths)) >= 0:
                    filled[name] = np.pad(array, widths, constant_values=value)
        return filled

    def cut_back(self, results: list[Any], extent: int) -> None:
        """Brings the results back to the extent of the call."""
        for index, axis in self.outputs:
            results[index] = results[index][(slice(None),) * axis + (slice(0, extent),)]


def lengths_of(
    inputs: Sequence[ValueSpec],
    outputs: Sequence[ValueSpec],
    sizes: Mapping[str, Sequence[int]],
    pad_values: Mapping[str, Any],
) -> list[Lengths]:
    """The dimensions that `sizes` names, other than the batch.

    Raises:
        InputError: no input has such a dimension, sizes beyond its range, an input without a value to fill it
            up with, or an output whose extent is computed from it.
    """
    return [_lengths(inputs, outputs, symbol, extents, pad_values) for symbol, extents in sizes.items()]


def _lengths(
    inputs: Sequence[ValueSpec],
    outputs: Sequence[ValueSpec],
    symbol: str,
    sizes: Sequence[int],
    pad_values: Mapping[str, Any],
) -> Lengths:
    axes = [(spec.name, axis, dim) for spec in inputs for axis, dim in _ranges(spec) if dim.symbol == symbol]
    if not axes:
        known = {dim.symbol: None for spec in inputs for _, dim in _ranges(spec) if dim.symbol}
        raise InputError(
            "no input has a dimension of this name",
            argument="buckets",
            got=symbol,
            hint=f"the dimensions that vary are {shown_names(known)}",
        )
    for name, _, dim in axes:
        if name not in pad_values:
            raise InputError(
                f"there is no value to fill the input {shown_names([name])!r} up with",
                argument=shown_names([name]),
                hint=f"pad_values={{{shown_names([name])!r}: 0}} fills it up with zeros",
            )
        for size in sizes:
            if size not in dim:
                raise InputError(
                    "a bucket is beyond the range of its dimension",
                    argument="buckets",
                    expected=f"{symbol} from {dim.min} to {dim.max}",
                    got=str(size),
                    hint="longer ones than the largest bucket run as they are",
                )
    for spec in outputs:
        for _, dim in _ranges(spec):
            if dim.symbol is None and dim.expression is not None and symbol in dim.expression:
                raise InputError(
                    f"the output {shown_names([spec.name])!r} has an extent computed from a dimension "
                    "with buckets",
                    argument=shown_names([spec.name]),
                    got=str(spec),
                    hint="leave the dimension out of buckets=",
                )
    filled = tuple((name, axis, pad_values[name]) for name, axis, _ in axes)
    cuts = [
        (i, axis) for i, spec in enumerate(outputs) for axis, dim in _ranges(spec) if dim.symbol == symbol
    ]
    return Lengths(symbol, tuple(sorted(sizes)), filled, tuple(cuts))


def _ranges(spec: ValueSpec) -> list[tuple[int, DimRange]]:
    return [(axis, dim) for axis, dim in enumerate(spec.shape or ()) if isinstance(dim, DimRange)]


def no_rows(inputs: Sequence[ValueSpec], arrays: Mapping[str, Array], output: ValueSpec) -> Array:
    """An output of a call without rows: its other extents are fixed, or those of the inputs.

    Raises:
        InputError: an extent is computed, so that it is not known without a run.
    """
    extents = {
        dim.symbol or "": arrays[spec.name].shape[axis]
        for spec in inputs
        if spec.name in arrays
        for axis, dim in _ranges(spec)
        if dim.symbol is not None and axis < arrays[spec.name].ndim
    }
    shape = [
        extents.get(dim.symbol or "") if isinstance(dim, DimRange) else dim
        for dim in (output.shape or ())[1:]
    ]
    known = [extent for extent in shape if extent is not None]
    if len(known) != len(shape):
        raise InputError(
            f"the extents of the output {shown_names([output.name])!r} are not known for a call without rows",
            argument=shown_names([output.name]),
            expected="at least one row",
            got="none",
            hint="leave out calls without rows",
        )
    return np.empty((0, *known), np.dtype(str(output.dtype)))


class Joined:
    """The rows of one output, put together from batches."""

    def __init__(self, name: str, rows: int) -> None:
        self._name = name
        self._rows = rows
        self._whole: Array | None = None

    def add(self, result: Any, batch: Batch) -> None:
        """The result of a batch, without the rows that filled it up.

        Raises:
            InputTypeError: NumPy lacks its element type. InputError: it has another shape than those before
                it.
        """
        if not isinstance(result, np.ndarray):
            raise InputTypeError(
                f"NumPy lacks the element type of the output {shown_names([self._name])!r}, so that its rows "
                "cannot be joined",
                argument=shown_names([self._name]),
                got=getattr(result, "dtype", type(result).__name__),
                hint="install ml_dtypes, or export the model with outputs of float32",
            )
        count = batch.stop - batch.start
        if count == self._rows and not batch.padded:
            self._whole = result
            return
        if self._whole is None:
            self._whole = np.empty((self._rows, *result.shape[1:]), result.dtype)
        if len(result) != batch.size or result.shape[1:] != self._whole.shape[1:]:
            raise InputError(
                f"the output {shown_names([self._name])!r} has other extents in one batch than in another",
                argument=shown_names([self._name]),
                expected=str((batch.size, *self._whole.shape[1:])),
                got=str(result.shape),
                hint="call with the rows of one batch, or give batched=() for one run in each call",
            )
        self._whole[batch.start : batch.stop] = result[:count]

    def whole(self) -> Any:
        """All rows."""
        return self._whole
