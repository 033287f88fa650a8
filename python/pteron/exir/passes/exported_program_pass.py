"""Passes over a whole exported program: graph, signature and constants."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch.export import ExportedProgram

from pteron.exir.edge.control_flow import graph_modules

Facts = TypeVar("Facts")


@dataclass(frozen=True)
class ExportedProgramPassResult:
    """What a pass returned: the program, and whether it differs from the one that was given."""

    exported_program: ExportedProgram
    modified: bool


class ExportedProgramPassBase(ABC):
    """A pass that may change constants and signature too, which a pass over a `GraphModule` cannot.

    Subclasses define `call`; calling the object checks `requires`, runs it and checks `ensures`.
    `EdgeProgramManager.transform` and `ExecutorchBackendConfig.passes` give it a copy of the program, so it
    may change what it is given.
    """

    def __call__(self, exported_program: ExportedProgram) -> ExportedProgramPassResult:
        """Run the pass between its two checks."""
        self.requires(exported_program)
        result = self.call(exported_program)
        self.ensures(result.exported_program)
        return result

    @abstractmethod
    def call(self, exported_program: ExportedProgram) -> ExportedProgramPassResult:
        """The pass itself."""

    def requires(self, exported_program: ExportedProgram) -> None:  # noqa: B027
        """Raise where the pass cannot run over this program; nothing is checked unless overridden."""

    def ensures(self, exported_program: ExportedProgram) -> None:  # noqa: B027
        """Raise where the program that the pass made is wrong; nothing is checked unless overridden."""

    def across(self, programs: Mapping[str, ExportedProgram]) -> ExportedProgramPassBase:
        """The pass to run over each of `programs`, the methods of one file, by name.

        A pass that must know what other methods read returns a new object here; others need not override it.
        """
        return self


class InPlacePass(ExportedProgramPassBase):
    """A function that changes a program and returns whether it did, as a pass. Made by `in_place_pass`."""

    def __init__(self, function: Callable[[ExportedProgram], bool]) -> None:
        self._function = function
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__

    def call(self, exported_program: ExportedProgram) -> ExportedProgramPassResult:
        """Run the function over `exported_program`, in place."""
        return ExportedProgramPassResult(exported_program, self._function(exported_program))

    def __repr__(self) -> str:
        return f"<pass {self.__name__}>"


def in_place_pass(function: Callable[[ExportedProgram], bool]) -> InPlacePass:
    """Decorator: a function over an exported program becomes a pass that `transform` takes."""
    return InPlacePass(function)


class EachGraphPass(ExportedProgramPassBase):
    """A function over one graph, as a pass: run over the program's own graph, then over every branch and loop
    body below it, callers first. The function itself never looks for bodies. Made by `each_graph`.

    `function`: changes a graph in place; returns whether it did, or None where it does not say.
    `facts`: computed once, before the first graph; its result is the second argument of `function`.
    """

    def __init__(
        self, function: Callable[..., bool | None], facts: Callable[[ExportedProgram], Any] | None = None
    ) -> None:
        self._function = function
        self._facts = facts
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__

    def call(self, exported_program: ExportedProgram) -> ExportedProgramPassResult:
        """Run the function over every graph of `exported_program`, in place."""
        given = () if self._facts is None else (self._facts(exported_program),)
        # Bodies are looked for when their caller is done: a pass may have given it others.
        answers = [self._function(module, *given) for module in graph_modules(exported_program.graph_module)]
        return ExportedProgramPassResult(exported_program, any(answer is not False for answer in answers))

    def __repr__(self) -> str:
        return f"<pass {self.__name__}>"


def each_graph(function: Callable[[torch.fx.GraphModule], bool | None]) -> EachGraphPass:
    """Decorator: a function over one graph becomes a pass over the graphs of a program."""
    return EachGraphPass(function)


def each_graph_with(
    facts: Callable[[ExportedProgram], Facts],
) -> Callable[[Callable[[torch.fx.GraphModule, Facts], bool | None]], EachGraphPass]:
    """Decorator of a function over a graph and over what `facts` says about the whole program."""

    def decorate(function: Callable[[torch.fx.GraphModule, Facts], bool | None]) -> EachGraphPass:
        return EachGraphPass(function, facts)

    return decorate
