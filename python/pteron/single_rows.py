"""Rows that come one by one, such as elements of a stream: put together to batches, also those of different
lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pteron.errors import InputError
from pteron.shown_names import shown_names

if TYPE_CHECKING:
    import numpy.typing as npt

    from pteron.batching import Batching, Lengths

    Array = npt.NDArray[Any]
    Row = dict[str, Array]

__all__ = ["run_rows"]


def run_rows(
    rows: Sequence[Mapping[str, Any]],
    batching: Batching | None,
    lengths: Sequence[Lengths],
    names: Sequence[str],
    call: Callable[[dict[str, Array]], dict[str, Array]],
) -> list[dict[str, Array]]:
    """The outputs of each row, by name.

    Rows whose dimensions in `lengths` go up to the same extents are filled up to them and run together,
    others with those of their own shapes. `names` are those of the outputs that `call` gives, in order.

    Raises:
        InputError: the method has no batch dimension, or a row has other inputs than those that have it.
    """
    if batching is None:
        raise InputError(
            "the method has no batch dimension, so that rows cannot be put together",
            hint="call the predictor with whole inputs, or name the inputs that have rows with batched=",
        )
    given = [_checked(row, batching) for row in rows]
    groups: dict[tuple[Any, ...], list[int]] = {}
    for index, row in enumerate(given):
        shapes = _shapes(row, lengths)
        groups.setdefault(
            tuple((name, shapes[name], row[name].dtype) for name in batching.inputs), []
        ).append(index)
    found: list[dict[str, Array]] = [{}] * len(given)
    for key, members in groups.items():
        joined = {
            name: _joined([given[index][name] for index in members], shape, _filler(name, lengths))
            for name, shape, _ in key
        }
        results = call(joined)
        for position, index in enumerate(members):
            found[index] = _one(results, position, names, lengths, given[index])
    return found


def _checked(row: Mapping[str, Any], batching: Batching) -> Row:
    if not isinstance(row, Mapping) or set(row) != set(batching.inputs):
        got = shown_names(map(str, row)) if isinstance(row, Mapping) else type(row).__name__
        raise InputError(
            "a row has other inputs than those with a batch dimension",
            argument="rows",
            expected=f"a dict with {shown_names(batching.inputs)}",
            got=got,
            hint="inputs that are the same for all rows are given with shared=",
        )
    return {name: np.asarray(value) for name, value in row.items()}


def _shapes(row: Row, lengths: Sequence[Lengths]) -> dict[str, tuple[int, ...]]:
    """The shapes that a row is run at: filled up along `lengths`, whose axes count the batch."""
    shapes = {name: list(array.shape) for name, array in row.items()}
    for one in lengths:
        extent = _extent(row, one)
        target = next((size for size in one.sizes if size >= extent), extent)
        for name, axis, _ in one.inputs:
            # An input with another extent than the first is left for the method to refuse.
            if name in shapes and axis - 1 < len(shapes[name]) and shapes[name][axis - 1] == extent:
                shapes[name][axis - 1] = target
    return {name: tuple(shape) for name, shape in shapes.items()}


def _extent(row: Row, lengths: Lengths) -> int:
    for name, axis, _ in lengths.inputs:
        if name in row and axis - 1 < row[name].ndim:
            return int(row[name].shape[axis - 1])
    return 0


def _filler(name: str, lengths: Sequence[Lengths]) -> Any:
    return next((value for one in lengths for other, _, value in one.inputs if other == name), 0)


def _joined(arrays: Sequence[Array], shape: tuple[int, ...], filler: Any) -> Array:
    """Rows under each other, each filled up to `shape`."""
    if all(array.shape == shape for array in arrays):
        return np.stack(arrays)
    whole = np.full((len(arrays), *shape), filler, arrays[0].dtype)
    for place, array in zip(whole, arrays, strict=True):
        place[tuple(slice(0, extent) for extent in array.shape)] = array
    return whole


def _one(
    results: dict[str, Array], position: int, names: Sequence[str], lengths: Sequence[Lengths], row: Row
) -> dict[str, Array]:
    """The outputs of one row, cut back to its own extents; copies, so that no row keeps a batch alive."""
    cuts: dict[int, list[slice]] = {}
    for one in lengths:
        for output, axis in one.outputs:
            slices = cuts.setdefault(output, [slice(None)] * (results[names[output]].ndim - 1))
            slices[axis - 1] = slice(0, _extent(row, one))
    return {
        name: results[name][(position, *cuts.get(output, ()))].copy() for output, name in enumerate(names)
    }
