"""What a backend implements to take part in compilation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any, TypeVar

import torch
from torch.export.exported_program import ExportedProgram

from pteron.errors import ExportError
from pteron.exir.backend.compile_spec import CompileSpec
from pteron.exir.backend.named_data_store import NamedDataStoreOutput
from pteron.exir.backend.program_copy import deep_copy, with_names_of
from pteron.exir.edge.control_flow import graph_modules
from pteron.exir.edge.source_location import source_location
from pteron.plugins import partitioner_offer_of

__all__ = [
    "BackendDetails",
    "CompileSpec",
    "ExportedProgram",
    "PreprocessError",
    "PreprocessResult",
    "enforcedmethod",
    "find_backend",
    "preprocess_one",
    "preprocess_partitions",
]


def failing_node(error: BaseException, programs: Iterable[ExportedProgram]) -> torch.fx.Node | None:
    """The node of `programs` that the innermost frame of `error`'s traceback holds, None if no frame does.

    Backends walk over nodes, and what they raise seldom says which one they were at: the variables of the
    frames that the exception came through do. A variable called `node` is preferred to others.
    """
    graphs = {id(module.graph) for program in programs for module in graph_modules(program.graph_module)}
    frames: list[FrameType] = []
    traceback = error.__traceback__
    while traceback is not None:
        frames.append(traceback.tb_frame)
        traceback = traceback.tb_next
    for frame in reversed(frames):
        held = {
            name: value
            for name, value in frame.f_locals.items()
            if isinstance(value, torch.fx.Node) and id(value.graph) in graphs
        }
        if held:
            return held.get("node") or next(reversed(held.values()))
    return None


#: Delegate debug id to the debug handles it stands for.
DebugHandleMap = (
    Mapping[int, tuple[int, ...]] | Mapping[str, tuple[int, ...]] | Mapping[int | str, tuple[int, ...]]
)

_Function = TypeVar("_Function", bound=Callable[..., Any])


class PreprocessError(ExportError):
    """A backend failed while it compiled its part of a program; `__cause__` is what it raised."""


def enforcedmethod(function: _Function) -> _Function:
    """Marks a method that every implementation has to provide."""
    function.__enforcedmethod__ = True  # type: ignore[attr-defined]
    return function


@dataclass
class PreprocessResult:
    """What a backend made of one program.

    Attributes:
        processed_bytes: the blob that its run half gets at load.
        debug_handle_map: for each step of the backend, by its own int or str id, the debug handles of the
            edge nodes it stands for; see `DelegateMappingBuilder`.
        data_store_output: named data to put beside the blob.
        _delegate_info_meta: anything; kept on `LoweredBackendModule.meta`, not written to the file.
    """

    processed_bytes: bytes = b""
    debug_handle_map: DebugHandleMap | None = None
    data_store_output: NamedDataStoreOutput | None = None
    _delegate_info_meta: Any = None


class BackendDetails(ABC):
    """Base class of a backend's compile half. The class name is the backend's name.

    A backend class is final: deriving from it is a TypeError. When two classes have the same name, the one
    that was defined last is used.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for base in cls.__bases__:
            if base is not BackendDetails and issubclass(base, BackendDetails):
                raise TypeError(
                    f"{cls.__name__}: ExecuTorch delegate doesn't support nested backend, '{base.__name__}' "
                    "should be "
                    "a final backend implementation and should not be subclassed; derive from BackendDetails "
                    "and "
                    "share code through functions"
                )

    @classmethod
    def copy_exported_program_for_preprocess(
        cls, edge_program: ExportedProgram, compile_specs: list[CompileSpec]
    ) -> ExportedProgram:
        """The copy that `preprocess` gets and may change. The default copies everything, weights included."""
        return deep_copy(edge_program)

    @staticmethod
    @enforcedmethod
    @abstractmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        """Compiles one program.

        Args:
            edge_program: in edge dialect, a copy that may be changed. Parameters, buffers and constants that
                the delegate owns are its parameters, buffers and constants; everything else is a user input.
            compile_specs: the caller's settings.

        Raises:
            RuntimeError: the backend cannot compile it; say which node and why.
        """

    @classmethod
    def preprocess_multimethod(
        cls,
        edge_programs: dict[str, list[ExportedProgram]],
        compile_specs: dict[str, list[list[CompileSpec]]],
    ) -> dict[str, list[PreprocessResult]]:
        """Compiles all partitions of all methods at once, so that they can share data.

        Args:
            edge_programs: method to its partitions, those in control-flow branches last.
            compile_specs: method to one list of specs for each partition.

        Returns:
            Method to one result for each partition, in the same order. The default calls `preprocess` for
            each.
        """
        results: dict[str, list[PreprocessResult]] = {}
        for method, programs in edge_programs.items():
            if method not in compile_specs:
                raise AssertionError(f"Error: missing compile specs for {method}")
            specs = compile_specs[method]
            if len(specs) != len(programs):
                raise AssertionError(
                    f"Error: method {method} has {len(programs)} partitions but only {len(specs)} compile "
                    "specs"
                )
            _require_preprocess(cls)
            results[method] = [
                cls.preprocess(program, spec) for program, spec in zip(programs, specs, strict=True)
            ]
        return results


def find_backend(backend_id: str) -> type[BackendDetails]:
    """The backend class of this name, the newest if there are several.

    Raises:
        NotImplementedError: no class of that name has been defined (imported).
    """
    known: dict[str, type[BackendDetails]] = {cls.__name__: cls for cls in BackendDetails.__subclasses__()}
    if backend_id not in known:
        names = ", ".join(sorted(known)) or "none"
        offer = partitioner_offer_of(backend_id)
        raise NotImplementedError(
            f"Backend {backend_id} was not found. Known backends: {names}. "
            + (f"{offer}." if offer else "Import the module that defines its BackendDetails subclass first.")
        )
    return known[backend_id]


def _require_preprocess(backend: type[BackendDetails]) -> None:
    if backend.preprocess is BackendDetails.preprocess:
        raise NotImplementedError(
            f"Backend {backend.__name__} has no preprocess(edge_program, compile_specs): define it as a "
            "static method that returns a PreprocessResult"
        )


def preprocess_one(
    backend: type[BackendDetails], program: ExportedProgram, compile_specs: list[CompileSpec]
) -> PreprocessResult:
    """Runs `preprocess` on a copy of `program`.

    Raises:
        NotImplementedError: the backend does not define it.
        RuntimeError: as the backend raised it, with a note that says where in the model it was.
        PreprocessError: the backend raised something else, or returned something that is not a result.
    """
    _require_preprocess(backend)
    given: list[ExportedProgram] = []

    def compile_copy() -> PreprocessResult:
        given.append(_copied(backend, program, compile_specs))
        return backend.preprocess(given[0], compile_specs)

    return _check_result(backend, _guarded(backend, "preprocess", compile_copy, given))


def preprocess_partitions(
    backend: type[BackendDetails],
    programs: dict[str, list[ExportedProgram]],
    compile_specs: dict[str, list[list[CompileSpec]]],
) -> dict[str, list[PreprocessResult]]:
    """Runs `preprocess_multimethod` on copies and checks that there is one result for each partition.

    Raises the same errors as `preprocess_one`.
    """

    given: list[ExportedProgram] = []

    def compile_copies() -> dict[str, list[PreprocessResult]]:
        copies = {
            method: [
                _copied(backend, program, specs)
                for program, specs in zip(partitions, compile_specs[method], strict=True)
            ]
            for method, partitions in programs.items()
        }
        given.extend(copy for of_method in copies.values() for copy in of_method)
        return backend.preprocess_multimethod(copies, compile_specs)

    results = _guarded(backend, "preprocess_multimethod", compile_copies, given)
    expected = {method: len(partitions) for method, partitions in programs.items()}
    if not isinstance(results, dict):
        raise PreprocessError(
            f"{backend.__name__}.preprocess_multimethod: expected a dict from method to a list of results, "
            "got "
            f"{type(results).__name__}"
        )
    got = {method: len(of_method) for method, of_method in results.items()}
    if got != expected:
        raise PreprocessError(
            f"{backend.__name__}.preprocess_multimethod: expected one result for each partition, that is "
            f"{expected}, "
            f"got {got}",
            expected=str(expected),
            got=str(got),
        )
    return {
        method: [_check_result(backend, result) for result in of_method]
        for method, of_method in results.items()
    }


def _copied(
    backend: type[BackendDetails], program: ExportedProgram, compile_specs: list[CompileSpec]
) -> ExportedProgram:
    return with_names_of(program, backend.copy_exported_program_for_preprocess(program, compile_specs))


def _guarded(
    backend: type[BackendDetails], name: str, compile_it: Callable[[], Any], given: list[ExportedProgram]
) -> Any:
    """Runs a backend's code over the programs `given` and says where it was when it fails."""
    try:
        return compile_it()
    except Exception as error:
        node = failing_node(error, given)
        place = None if node is None else str(source_location(node))
        at = "" if node is None else f" at node {node.format_node()} from {place}"
        if isinstance(error, RuntimeError):
            # Its type and text are the backend's to choose, and callers look at them.
            error.add_note(f"raised by {backend.__name__}.{name}{at}")
            raise
        raise PreprocessError(
            f"{backend.__name__}.{name} failed{at}: {type(error).__name__}: {error}",
            operator=None if node is None else str(getattr(node.target, "__name__", node.target)),
            source_line=place,
        ) from error


def _check_result(backend: type[BackendDetails], result: Any) -> PreprocessResult:
    # Attributes, not the class: a backend written against the peer's package returns the peer's class.
    if not isinstance(getattr(result, "processed_bytes", None), (bytes, bytearray, memoryview)):
        raise PreprocessError(
            f"{backend.__name__}.preprocess: expected a PreprocessResult whose processed_bytes are bytes, "
            f"got {result!r}"
        )
    return result  # type: ignore[no-any-return]
