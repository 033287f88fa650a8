"""The table of converters, and the arguments that they get."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pteron_onnxruntime.graph import Graph, UnsupportedError


class Arguments:
    """The arguments of a node by the names of its schema, with their defaults."""

    def __init__(self, graph: Graph, node: torch.fx.Node) -> None:
        self.graph, self.node = graph, node
        schema: Any = getattr(node.target, "_schema", None)
        self._given: dict[str, Any] = {}
        for at, argument in enumerate(schema.arguments if schema is not None else ()):
            if at < len(node.args) and not argument.kwarg_only:
                self._given[argument.name] = node.args[at]
            elif argument.name in node.kwargs:
                self._given[argument.name] = node.kwargs[argument.name]
            elif argument.has_default_value():
                self._given[argument.name] = argument.default_value

    def __getitem__(self, name: str) -> Any:
        return self._given[name]

    def get(self, name: str) -> Any:
        """None where the schema has no such argument."""
        return self._given.get(name)

    def value(self, name: str) -> Any:
        """The fake tensor of an argument."""
        return self._given[name].meta["val"]

    def rank(self, name: str = "self") -> int:
        """The number of dimensions of an argument."""
        return int(self.value(name).dim())

    def dim(self, name: str = "dim", of: str = "self") -> int:
        """A dimension, counted from the front."""
        dim = int(self._given[name])
        return dim if dim >= 0 else dim + max(1, self.rank(of))

    def dims(self, name: str = "dim", of: str = "self") -> list[int]:
        """Dimensions, counted from the front."""
        rank = max(1, self.rank(of))
        given = self._given[name]
        return [d if d >= 0 else d + rank for d in ([given] if isinstance(given, int) else given)]

    def tensor(self, name: str, wanted: torch.dtype | None = None) -> str:
        """The value of an argument, in the element type `wanted` where one is given."""
        if wanted is None:
            return self.graph.name(self._given[name])
        return self.graph.tensor(self._given[name], wanted)

    def optional(self, name: str) -> str | None:
        """As `tensor`; None where the argument is None."""
        return None if self._given.get(name) is None else self.tensor(name)

    @property
    def result(self) -> torch.Tensor:
        """The fake tensor of the (first) result."""
        value = self.node.meta["val"]
        first: torch.Tensor = value[0] if isinstance(value, list | tuple) else value
        return first

    def ints(self, name: str) -> list[int]:
        """Numbers that are known.

        Raises:
            UnsupportedError: one of them varies.
        """
        values = self._given[name]
        if not all(isinstance(value, int) for value in values):
            raise UnsupportedError(f"{name} varies")
        return [int(value) for value in values]


#: What a converter returns: the name of the result, or those of several; None for one that nothing may read.
Converter = Callable[[Graph, Arguments], "str | list[str | None]"]
CONVERTERS: dict[str, Converter] = {}


def converted(*names: str) -> Callable[[Converter], Converter]:
    """Enters a converter under names of edge operators."""

    def enter(converter: Converter) -> Converter:
        for name in names:
            CONVERTERS[name] = converter
        return converter

    return enter
