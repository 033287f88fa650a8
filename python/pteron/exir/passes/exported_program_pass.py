"""Passes over a whole exported program: graph, signature and constants."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch.export import ExportedProgram


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
