"""Who wrote a tensor last: by its value, and by place for values that are names of the same bytes."""

from __future__ import annotations

from typing import Generic, TypeVar

from pteron.devtools.description import TensorValue

T = TypeVar("T")


class Writers(Generic[T]):
    """What is noted for tensors, by value and by place in planned memory."""

    def __init__(self) -> None:
        self._values: dict[int, T] = {}
        self._places: dict[tuple[int, int], tuple[int, T]] = {}

    def note(self, tensor: TensorValue, who: T) -> None:
        """`who` writes the tensor."""
        self._values[tensor.index] = who
        if tensor.arena is not None and tensor.offset is not None:
            self._places[tensor.arena, tensor.offset] = tensor.index, who

    def has(self, tensor: TensorValue) -> bool:
        """Whether the tensor was written under this name."""
        return tensor.index in self._values

    def of(self, tensor: TensorValue) -> T | None:
        """Who wrote the tensor last; None where nobody did."""
        found = self._values.get(tensor.index)
        if found is not None or tensor.arena is None or tensor.offset is None:
            return found
        place = self._places.get((tensor.arena, tensor.offset))
        return None if place is None else place[1]
