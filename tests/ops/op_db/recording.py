"""The operator calls that eager PyTorch makes, as programs hold them: functional and decomposed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, decomposition_table
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from pteron.exir.decompose.missing_decompositions import MISSING_DECOMPOSITIONS
from pteron.exir.decompose.prims_as_aten import PRIMS_AS_ATEN
from pteron.exir.edge.stages import has_kernel

# Their results are memory as it happens to be.
_UNDEFINED = frozenset({"aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty"})

Arguments = tuple[Any, ...]


@dataclass
class RecordedCall:
    """One call of a functional overload: arguments as they were, and what eager PyTorch answered.

    `expected` is None where eager refused; `error` has its words then.
    """

    op: OpOverload
    args: Arguments
    kwargs: dict[str, Any]
    expected: list[torch.Tensor] | None
    error: str = ""


@dataclass
class Recorder(TorchDispatchMode):
    """While active, notes every call of an operator that has a kernel here.

    An operator without kernel is decomposed as far as PyTorch's tables go; what is left is counted in
    `without_kernel`. Calls that `is_wanted` declines are made and not noted.
    """

    is_wanted: Callable[[OpOverload, Arguments], bool] = lambda op, args: True
    calls: list[RecordedCall] = field(default_factory=list)
    without_kernel: set[str] = field(default_factory=set)
    open: list[OpOverload] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Arguments = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        functional = functional_overload(func)
        if functional is not None and has_kernel(functional):
            self._note(functional, args, kwargs)
            return func(*args, **kwargs)
        # Some decompositions lead back to where they came from.
        if func not in self.open:
            self.open.append(func)
            try:
                with self:
                    result = _decompose(func, args, kwargs)
            finally:
                self.open.pop()
            if result is not NotImplemented:
                return result
        self.without_kernel.add(str(func))
        return func(*args, **kwargs)

    def _note(self, op: OpOverload, args: Arguments, kwargs: dict[str, Any]) -> None:
        if op._schema.name in _UNDEFINED or torch.Tag.nondeterministic_seeded in op.tags:
            return
        op = with_numbers(op, args)
        if not self.is_wanted(op, args):
            return
        kept = snapshot(args), snapshot(kwargs)
        try:
            result = op(*snapshot(kept[0]), **snapshot(kept[1]))
        except Exception as error:
            self.calls.append(RecordedCall(op, *kept, None, str(error)))
            return
        tensors = [result] if isinstance(result, torch.Tensor) else list(result)
        expected = [owned(t) for t in tensors]
        self.calls.append(RecordedCall(op, *kept, expected))


def _decompose(op: OpOverload, args: Arguments, kwargs: dict[str, Any]) -> Any:
    rule = _rule(op)
    if rule is not None:
        return rule(*args, **kwargs)
    # What PyTorch's own kernel of a composite operator calls.
    return op.decompose(*args, **kwargs)  # type: ignore[no-untyped-call]


@functools.cache
def _core_rules() -> dict[Any, Callable[..., Any]]:
    return core_aten_decompositions()


@functools.cache
def _rule(op: OpOverload) -> Callable[..., Any] | None:
    """How `to_edge` decomposes an operator, or PyTorch's tables know to."""
    tables = (MISSING_DECOMPOSITIONS, PRIMS_AS_ATEN, _core_rules(), decomposition_table)
    return next((table[op] for table in tables if op in table), None)


def with_numbers(op: OpOverload, args: Arguments) -> OpOverload:
    """The overload for a number where a call passes a number for a tensor, as decompositions do."""
    kinds = [str(argument.type) for argument in op._schema.arguments]
    is_number = any(
        kind == "Tensor" and isinstance(value, (bool, int, float))
        for kind, value in zip(kinds, args, strict=False)
    )
    scalar = getattr(op.overloadpacket, "Scalar", None) if is_number else None
    return op if scalar is None else scalar


@functools.cache
def functional_overload(op: OpOverload) -> OpOverload | None:
    """What a program holds in place of an operator: `view_copy` for `view`, `add` for `add_`."""
    schema = op._schema
    if op is torch.ops.aten._unsafe_view.default:
        return torch.ops.aten.view_copy.default
    library, name = schema.name.split("::")
    aliases = [a.alias_info for a in schema.arguments if a.alias_info is not None]
    if not aliases:
        return op
    if any(a.is_write for a in aliases):
        if not name.endswith("_") or not schema.arguments[0].alias_info:
            return None
        name = name[:-1]
    else:
        name += "_copy"
    return getattr(getattr(getattr(torch.ops, library), name, None), op._overloadname, None)


def owned(result: torch.Tensor | None) -> torch.Tensor:
    """A result on memory of its own; without elements where a gradient is absent because nobody asked."""
    if result is None:
        return torch.empty(0)
    return result.clone() if result.is_contiguous() else result


def snapshot(tree: Any) -> Any:
    """The same arguments on memory of their own, strides kept."""
    return tree_map_only(torch.Tensor, _copy, tree)


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.is_contiguous() and not tensor.storage_offset():
        return tensor.clone()
    storage = tensor.untyped_storage().clone()
    copied = torch.empty(0, dtype=tensor.dtype)
    return copied.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())
