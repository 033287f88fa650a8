"""`to_backend`: hand a program, or the parts of it that a partitioner picks, to backends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, overload

import torch
from torch.export.exported_program import ExportedProgram

from pteron.errors import ExportError
from pteron.exir.backend.backend_details import find_backend, preprocess_one, preprocess_partitions
from pteron.exir.backend.compile_spec import CompileSpec, MethodCompileSpec, check_compile_specs
from pteron.exir.backend.lowered_backend_module import LoweredBackendModule
from pteron.exir.backend.partition_calls import (
    cut_partitions,
    disable_validation,
    finished_program,
    in_graph_order,
    insert_delegate_call,
    lowered_module_for,
    make_lowered_module,
    remove_used_metadata,
    tag_program,
    validation_disabled,
)
from pteron.exir.backend.partitioner import DelegationSpec, Partitioner, as_partitioner
from pteron.exir.backend.recorded_partitions import recorded_backend, recorded_partition
from pteron.exir.edge.verify import EdgeDialectVerifier
from pteron.exir.progress import reach, step

__all__ = [
    "MethodCompileSpec",
    "MethodProgramsPartitionerSpec",
    "disable_validation",
    "lower_all_submodules_to_backend",
    "remove_used_metadata",
    "to_backend",
    "validation_disabled",
]

#: Share of the time, for the expected one; the rest is what backends do.
_PARTITION_SHARE = 0.4


def program_of(held: Any) -> ExportedProgram:
    """The edge program in `held`: itself, or what its `exported_program` attribute is.

    Raises:
        TypeError: there is none.
        ExportError: it is a captured program that `to_edge` has not brought into the edge dialect.
    """
    if isinstance(held, ExportedProgram):
        return _checked(held)
    program = getattr(held, "exported_program", None)
    if isinstance(program, ExportedProgram) and hasattr(held, "with_exported_program"):
        return _checked(program)
    hint = ""
    if callable(program):
        hint = "; pass its .exported_program(), or call its own .to_backend(partitioner)"
    if isinstance(held, torch.nn.Module):
        hint = "; make one with to_edge(torch.export.export(model, inputs)).exported_program()"
    raise TypeError(f"expected an edge program (ExportedProgram), got {type(held).__name__}{hint}")


def _checked(program: ExportedProgram) -> ExportedProgram:
    if program.dialect != EdgeDialectVerifier.dialect:
        raise ExportError(
            f"to_backend: expected a program in the edge dialect, got dialect {program.dialect!r}",
            expected=EdgeDialectVerifier.dialect,
            got=program.dialect,
            hint="call to_edge on it first: to_edge(program).exported_program(), or capture(...).to_edge()",
        )
    return program


def with_program(held: Any, program: ExportedProgram) -> Any:
    """`program` in an object of the same kind as `held`."""
    return program if isinstance(held, ExportedProgram) else held.with_exported_program(program)


#: What picks the nodes to lower. A class is instantiated; a spec means the whole graph.
PartitionerChoice = Partitioner | type[Partitioner] | DelegationSpec


@dataclass
class MethodProgramsPartitionerSpec:
    """Several methods that are lowered together, so that backends can share data between them.

    Attributes:
        method_to_edge_program: method name to edge program.
        method_to_partitioner: method name to what picks its nodes; methods it does not name stay as they are.
    """

    method_to_edge_program: Mapping[str, Any]
    method_to_partitioner: Mapping[str, PartitionerChoice]


@singledispatch
def _lower(first: Any, *rest: Any, **keywords: Any) -> Any:
    """`to_backend` by the type of its first argument; this is for types that nobody registered."""
    if isinstance(getattr(first, "exported_program", None), ExportedProgram):
        given = _arguments(("edge_program", *_PARTITIONER), (first, *rest), keywords)
        program, choice = given["edge_program"], given["partitioner"]
        return with_program(program, _lower_partitions(program_of(program), as_partitioner(choice)))
    kinds = ", ".join(type(value).__name__ for value in (first, *rest))
    raise TypeError(
        "to_backend: expected (backend_id, edge_program, compile_specs), (edge_program, partitioner) or "
        f"(MethodProgramsPartitionerSpec), got ({kinds})"
    )


@_lower.register(str)
def _(*args: Any, **keywords: Any) -> LoweredBackendModule:
    given = _arguments(("backend_id", "edge_program", *_SPECS), args, keywords)
    program = program_of(given["edge_program"])
    return _lower_whole(given["backend_id"], program, check_compile_specs(given["compile_specs"]))


@_lower.register(ExportedProgram)
def _(*args: Any, **keywords: Any) -> ExportedProgram:
    given = _arguments(("edge_program", *_PARTITIONER), args, keywords)
    return _lower_partitions(program_of(given["edge_program"]), as_partitioner(given["partitioner"]))


@_lower.register(MethodProgramsPartitionerSpec)
def _(*args: Any, **keywords: Any) -> dict[str, Any]:
    return _lower_methods(_arguments(_METHODS, args, keywords)["method_edge_program_partitioners"])


#: Other spellings of the last parameter of each form.
_SPECS = ("compile_specs", "compile_spec")
_PARTITIONER = ("partitioner", "partitioner_instance")
_METHODS = ("method_edge_program_partitioners",)
_SPELLINGS = {"compile_spec": "compile_specs", "partitioner_instance": "partitioner"}


def _arguments(names: Sequence[str], args: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of one form by name: `args` in the order of `names`, then `keywords` in any order.

    Raises:
        TypeError: one is missing, given twice, or not a parameter of this form.
    """
    places = [name for name in names if name not in _SPELLINGS]
    if len(args) > len(places):
        raise TypeError(f"to_backend() takes {', '.join(places)}, but {len(args)} arguments were given")
    given = dict(zip(places, args, strict=False))
    for spelling, value in keywords.items():
        name = _SPELLINGS.get(spelling, spelling)
        if spelling not in names:
            raise TypeError(f"to_backend() got an unexpected keyword argument {spelling!r}")
        if name in given:
            raise TypeError(f"to_backend() got multiple values for argument {name!r}")
        given[name] = value
    missing = [name for name in places if name not in given]
    if missing:
        hint = "; pass [] for a backend without settings" if "compile_specs" in missing else ""
        raise TypeError(
            f"to_backend() missing {len(missing)} required positional argument"
            f"{'s' * (len(missing) > 1)}: {' and '.join(map(repr, missing))}{hint}"
        )
    return given


@overload
def to_backend(
    args: str, edge_program: Any, compile_specs: Sequence[CompileSpec], /
) -> LoweredBackendModule: ...
@overload
def to_backend(args: MethodProgramsPartitionerSpec, /) -> dict[str, Any]: ...
@overload
def to_backend(args: ExportedProgram, partitioner: PartitionerChoice, /) -> ExportedProgram: ...
@overload
def to_backend(args: Any, partitioner: PartitionerChoice, /) -> Any: ...
@overload
def to_backend(*args: Any, **keywords: Any) -> Any: ...


def to_backend(*args: Any, **keywords: Any) -> Any:
    """Lowers a program to backends. Three forms, arguments by place or by name:

    `to_backend(backend_id, edge_program, compile_specs)` compiles the whole program and returns a
    `LoweredBackendModule` to call, compose with other modules, or write. The last name may be `compile_spec`.

    `to_backend(edge_program, partitioner)` returns the program with every partition replaced by a delegate
    call. The given program is not changed; tensors are shared. The last name may be `partitioner_instance`.

    `to_backend(MethodProgramsPartitionerSpec(programs, partitioners))` does this for several methods, with
    one `preprocess_multimethod` call for each backend, and returns `{method: program}`.

    A program may also be what `exir.capture(...).to_edge()` returned; then the result is of that kind too. A
    partitioner may be an instance, a class, or a `DelegationSpec`, which stands for the whole graph.

    `to_backend.register` adds a form for another type of the first argument, as `functools.singledispatch`
    does; `dispatch` and `registry` are there too.

    Raises:
        TypeError: an argument is missing or of a kind that no form takes.
        ExportError: a program is not in the edge dialect.
        NotImplementedError: no backend has that name.
        RuntimeError: the backend cannot compile a part, or a tag is on a node that cannot be lowered.
        AssertionError: the partitioner broke its contract, or a partition would depend on itself.
    """
    if args:
        return _lower(*args, **keywords)
    # singledispatch looks at the first place only; by name, the form is that of the name.
    for name in ("backend_id", *_METHODS, "edge_program"):
        if name in keywords:
            rest = {other: value for other, value in keywords.items() if other != name}
            return _lower(keywords[name], **rest)
    raise TypeError(f"to_backend() got no program; keyword arguments are {sorted(keywords)}")


to_backend.register = _lower.register  # type: ignore[attr-defined]
to_backend.dispatch = _lower.dispatch  # type: ignore[attr-defined]
to_backend.registry = _lower.registry  # type: ignore[attr-defined]


def lower_all_submodules_to_backend(
    backend_id: str,
    method_to_submodules_nodes: dict[str, list[torch.fx.Node]],
    method_to_tagged_edge_program: dict[str, ExportedProgram],
) -> None:
    """Compiles all cut partitions of one backend in one call and puts delegate calls in their place.

    Args:
        backend_id: name of the backend.
        method_to_submodules_nodes: method to the `call_module` nodes of its partitions, whose metadata holds
            `submodule_program`, `compile_spec`, `is_submodule`, `submodule_output_node` and what the program
            took over, as `cut_by_nodes` returns it.
        method_to_tagged_edge_program: method to the program that these nodes are in; changed in place.
    """
    backend = find_backend(backend_id)
    results = preprocess_partitions(
        backend,
        {m: [c.meta["submodule_program"] for c in calls] for m, calls in method_to_submodules_nodes.items()},
        {m: [c.meta["compile_spec"] for c in calls] for m, calls in method_to_submodules_nodes.items()},
    )
    for method, calls in method_to_submodules_nodes.items():
        for call, result in zip(calls, results[method], strict=True):
            lowered = lowered_module_for(call, result, backend_id)
            insert_delegate_call(call, lowered, method_to_tagged_edge_program[method])
        method_to_tagged_edge_program[method].graph_module.recompile()


def _lower_whole(backend_id: str, program: ExportedProgram, specs: list[CompileSpec]) -> LoweredBackendModule:
    result = preprocess_one(find_backend(backend_id), program, specs)
    return make_lowered_module(program, backend_id, list(specs), result)


def _lower_partitions(program: ExportedProgram, partitioner: Partitioner) -> ExportedProgram:
    tagged, tags = tag_program(program, partitioner)
    for spec in tags.values():
        find_backend(spec.backend_id)
    for call in in_graph_order(cut_partitions(tagged, tags)):
        backend_id = call.meta["backend_id"]
        result = preprocess_one(
            find_backend(backend_id), call.meta["submodule_program"], call.meta["compile_spec"]
        )
        insert_delegate_call(call, lowered_module_for(call, result, backend_id))
    return finished_program(tagged, program)


def _lower_methods(methods: MethodProgramsPartitionerSpec) -> dict[str, Any]:
    held = dict(methods.method_to_edge_program)
    for method in methods.method_to_partitioner:
        if method not in held:
            raise AssertionError(
                f"Partitioner for method {method} is not provided with a program: there is no such method; "
                f"methods are {sorted(held)}"
            )
    tagged: dict[str, ExportedProgram] = {}
    # Of each backend, the partitions of each method.
    calls_of: dict[str, dict[str, list[torch.fx.Node]]] = {}
    for at, (method, choice) in enumerate(methods.method_to_partitioner.items()):
        reach(_PARTITION_SHARE * at / len(methods.method_to_partitioner))
        with recorded_partition(program_of(held[method]), choice, method) as parts:
            tagged[method], tags = tag_program(program_of(held[method]), as_partitioner(choice))
            for spec in tags.values():
                find_backend(spec.backend_id)
            parts += in_graph_order(cut_partitions(tagged[method], tags))
        for call in parts:
            calls_of.setdefault(call.meta["backend_id"], {}).setdefault(method, []).append(call)
    for at, (backend_id, calls) in enumerate(calls_of.items()):
        reach(_PARTITION_SHARE + (1.0 - _PARTITION_SHARE) * at / len(calls_of))
        step(f"{backend_id}: {sum(map(len, calls.values())):,} partitions")
        with recorded_backend(backend_id, calls):
            lower_all_submodules_to_backend(backend_id, calls, tagged)
    return {
        method: with_program(program, finished_program(tagged[method], program_of(program)))
        if method in tagged
        else program
        for method, program in held.items()
    }
