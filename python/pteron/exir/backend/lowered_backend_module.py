"""A module that a backend has compiled: it computes the original result in eager mode and the backend's at
run time.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.export.exported_program import ExportedProgram
from torch.export.graph_signature import OutputKind

from pteron.exir.backend.compile_spec import CompileSpec
from pteron.exir.backend.delegate_call import (
    attach_lowered_module,
    executorch_call_delegate,
    get_lowered_module_name,
    is_delegate_output,
)
from pteron.exir.backend.delegate_call_program import build_delegate_call_program
from pteron.exir.backend.flat_calling_convention import call_signature, is_flat, with_flat_calling_convention
from pteron.exir.backend.named_data_store import NamedDataStoreOutput
from pteron.exir.backend.program_copy import copy_with_own_state
from pteron.exir.edge.delegate_call import is_delegate_call, lowered_module_of

__all__ = [
    "LoweredBackendModule",
    "attach_lowered_module",
    "executorch_call_delegate",
    "get_lowered_backend_modules",
    "get_lowered_module_name",
    "get_lowered_submodules",
    "is_delegate_call",
    "is_delegate_output",
    "set_lowering",
]

#: Turns an edge program into something with `.buffer` (bytes) and `.executorch_program` (the program as
#: objects). Keyword arguments are fields of `ExecutorchBackendConfig`; None is never passed.
Lowering = Callable[..., Any]

# Set by `set_lowering`. Importing any module of `pteron.exir` imports the package first, and that imports
# `pteron.exir.program`: by the time somebody can make a lowered module, it is set.
_lowering: Lowering


def set_lowering(lowering: Lowering) -> None:
    """Says how a whole edge program becomes bytes.

    `pteron.exir.program` calls this when it is imported. The layers below it, this one among them, never
    import it.
    """
    global _lowering
    _lowering = lowering


class LoweredBackendModule(torch.nn.Module):
    """What `to_backend` makes of a program or of a part of one.

    Calling it runs the original program in PyTorch, so a module that contains it can be tested and exported
    like any other. In the exported program the call is one `executorch_call_delegate` node, which at run time
    hands its arguments to the delegate.

    Attributes:
        meta: `debug_handle_map` (delegate debug id to debug handles of the lowered program) and, when the
            backend gave one, `_delegate_info_meta`.
    """

    meta: dict[str, Any] | None

    def __init__(
        self,
        edge_program: ExportedProgram,
        backend_id: str,
        processed_bytes: bytes,
        compile_specs: list[CompileSpec],
        named_data_store_output: NamedDataStoreOutput | None = None,
    ) -> None:
        super().__init__()
        self._in_spec, self._out_spec = call_signature(edge_program)
        self._is_flat = is_flat(edge_program)
        # The operator calls the original program with the flat list of its arguments, as the runtime will.
        self._original_program = edge_program if self._is_flat else with_flat_calling_convention(edge_program)
        # Plain values, read once: `forward` is traced by Dynamo, which does not enter an ExportedProgram.
        self._keyword_names = keyword_names(self._in_spec)
        self._writes_arguments = any(
            spec.kind is OutputKind.USER_INPUT_MUTATION for spec in edge_program.graph_signature.output_specs
        )
        self._backend_id = backend_id
        self._processed_bytes = processed_bytes
        self._compile_specs = compile_specs
        self._named_data_store_output = named_data_store_output
        self.meta = None

    @property
    def backend_id(self) -> str:
        """Name of the backend."""
        return self._backend_id

    @property
    def processed_bytes(self) -> bytes:
        """The blob that the backend's `preprocess` returned."""
        return self._processed_bytes

    @property
    def compile_specs(self) -> list[CompileSpec]:
        """The settings that `preprocess` got and the file will carry."""
        return self._compile_specs

    @property
    def original_module(self) -> ExportedProgram:
        """The edge program that was lowered."""
        return self._original_program

    @property
    def named_data_store_output(self) -> NamedDataStoreOutput | None:
        """Data that the backend put beside its blob, None if there is none."""
        return self._named_data_store_output

    def __deepcopy__(self, memo: dict[int, Any]) -> LoweredBackendModule:
        # Weights, blob and all else that nobody changes once a module is lowered are shared by its copies.
        # Graphs hold metadata that later stages write to, and eager calls update buffers: those are copied.
        duplicate = LoweredBackendModule.__new__(LoweredBackendModule)
        torch.nn.Module.__init__(duplicate)
        memo[id(self)] = duplicate
        duplicate._in_spec, duplicate._out_spec = self._in_spec, self._out_spec
        duplicate._is_flat = self._is_flat
        duplicate._keyword_names = self._keyword_names
        duplicate._writes_arguments = self._writes_arguments
        duplicate._original_program = copy_with_own_state(self._original_program)
        duplicate._backend_id = self._backend_id
        duplicate._processed_bytes = self._processed_bytes
        duplicate._compile_specs = copy.deepcopy(self._compile_specs, memo)
        duplicate._named_data_store_output = self._named_data_store_output
        duplicate.meta = None if self.meta is None else dict(self.meta)
        return duplicate

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Computes what the original program computes, with its arguments and its result structure."""
        if self._writes_arguments:
            self._refuse_untraceable_mutation(args, kwargs)
        if self._is_flat and not kwargs:
            return executorch_call_delegate(self, *args)
        ordered = {name: kwargs[name] for name in self._keyword_names if name in kwargs}
        ordered.update(kwargs)
        leaves, spec = pytree.tree_flatten((args, ordered))
        if spec != self._in_spec:
            raise TypeError(
                f"lowered module of backend {self._backend_id}: expected arguments of structure "
                f"{self._in_spec}, "
                f"got {spec}; call it as the exported module was called"
            )
        outputs = executorch_call_delegate(self, *leaves)
        return pytree.tree_unflatten(list(outputs), self._out_spec)

    def buffer(
        self,
        extract_delegate_segments: bool = False,
        segment_alignment: int = 128,
        constant_tensor_alignment: int | None = None,
        delegate_alignment: int | None = None,
        memory_planning: Any = None,
    ) -> bytes:
        """The bytes of a complete program that takes this module's arguments and calls the delegate.

        Args:
            extract_delegate_segments: put the blob into a segment of its own, behind the program table.
            segment_alignment: bytes.
            constant_tensor_alignment: bytes, None for the default.
            delegate_alignment: bytes, None for the default.
            memory_planning: a memory planning pass, None for the default.
        """
        lowered = self._lower(
            extract_delegate_segments=extract_delegate_segments,
            segment_alignment=segment_alignment,
            constant_tensor_alignment=constant_tensor_alignment,
            delegate_alignment=delegate_alignment,
            memory_planning_pass=memory_planning,
        )
        return bytes(lowered.buffer)

    @property
    def program(self) -> CompleteProgram:
        """The complete program of this module as objects: read its fields, or call it with options first."""
        return CompleteProgram(self)

    def _lower(self, **options: Any) -> Any:
        chosen = {name: value for name, value in options.items() if value is not None}
        return _lowering(build_delegate_call_program(self, self._in_spec, self._out_spec), **chosen)

    def _refuse_untraceable_mutation(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        # Tracing functionalises a program, and a write to an argument inside the call would be lost in that.
        is_tracing = torch.compiler.is_compiling() or any(
            type(leaf) is not torch.Tensor and isinstance(leaf, torch.Tensor)
            for leaf in pytree.tree_leaves((args, kwargs))
        )
        if is_tracing:
            raise RuntimeError(
                f"lowered module of backend {self._backend_id} writes to its own arguments, which cannot be "
                "exported "
                "as part of another module; return the new value instead, or keep it in a buffer of the "
                "module"
            )


def keyword_names(in_spec: pytree.TreeSpec) -> tuple[str, ...]:
    """Names of the keyword arguments in the structure `((args), {kwargs})`, in its order."""
    return tuple(in_spec.children()[1].context or ())


class CompleteProgram:
    """The program of one lowered module, built when it is first read.

    `lowered.program` and `lowered.program()` both give the program: the attribute builds it with default
    options when one of its fields is read, the call builds it at once with the options given.
    """

    def __init__(self, lowered_module: LoweredBackendModule) -> None:
        self._lowered_module = lowered_module
        self._built: Any = None

    def __call__(self, emit_stacktrace: bool = False, memory_planning: Any = None) -> Any:
        lowered = self._lowered_module._lower(
            emit_stacktrace=emit_stacktrace or None, memory_planning_pass=memory_planning
        )
        return lowered.executorch_program

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self._built is None:
            self._built = self()
        return getattr(self._built, name)


def get_lowered_submodules(
    graph_module: torch.fx.GraphModule,
) -> list[tuple[str, LoweredBackendModule, torch.fx.Node]]:
    """Each delegate call of this graph, branches not included: (attribute name, lowered module, call
    node).
    """
    found = []
    for node in graph_module.graph.nodes:
        if not is_delegate_call(node):
            continue
        name, module = str(node.args[0].target), lowered_module_of(node)
        if not isinstance(module, LoweredBackendModule):
            raise TypeError(
                f"{node}: expected {name} to be a LoweredBackendModule, got {type(module).__name__}"
            )
        found.append((name, module, node))
    return found


def get_lowered_backend_modules(graph_module: torch.fx.GraphModule) -> list[LoweredBackendModule]:
    """The lowered modules that this graph calls, one entry per call."""
    return [module for _, module, _ in get_lowered_submodules(graph_module)]
