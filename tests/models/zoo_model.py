"""What an architecture of the list is: methods to export and calls to compare."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

Inputs = Mapping[str, Tensor]


@dataclass(frozen=True)
class Method:
    """A module that becomes one method of the program: what it is traced with, by argument name.

    `dynamic`: the dimensions that may differ, as `torch.export.export` takes them; all others are static.
    `options`: what else `torch.export.export` takes. `strict=True` is what state behind plain Python objects
    needs; `prefer_deferred_runtime_asserts_over_guards=True` what extents need that are computed by division.
    """

    module: nn.Module
    example: Inputs
    dynamic: Mapping[str, Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Model:
    """The methods of one program, and calls in their order; state stays between calls.

    `expected`: the main result of each call, got another way than by calling the module (a decoder with a
    cache against the whole sequence without one); None compares with eager calls of the modules alone.
    """

    methods: Mapping[str, Method]
    calls: Sequence[tuple[str, Inputs]]
    expected: Sequence[Tensor] | None = None

    @classmethod
    def of(
        cls,
        module: nn.Module,
        *inputs: Inputs,
        dynamic: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Model:
        """One stateless method `forward`, traced with the first inputs and compared on all."""
        method = Method(module.eval(), inputs[0], dynamic, options or {})
        return cls({"forward": method}, [("forward", given) for given in inputs])


@dataclass(frozen=True)
class Architecture:
    """A row of the list.

    `dynamic` and `covers` are what the documentation's table says: the dimensions that may differ, and what
    the row exercises. `quick`: part of `make test`. `fails`: why the row does not work; None where it does.
    """

    name: str
    kind: str
    dynamic: str
    covers: str
    build: Callable[[], Model]
    quick: bool = False
    fails: str | None = None
