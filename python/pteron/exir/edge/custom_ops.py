"""Custom operators: those of libraries that neither PyTorch nor this package defines.

No kernel table lists them. A program calls them by their out variant, `my_ns::my_op.out`; one that has none
gets one here, made from its schema, so that the graph goes through the pipeline as any other. The torch
library behind those has a name of its own: the operator's library stays as its owner made it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload

from pteron.errors import MissingOutVariantError

LIBRARY_NAMESPACE = "pteron_custom"

_KNOWN = frozenset(
    {
        *(
            "aten",
            "prim",
            "prims",
            "prepacked",
            "quantized",
            "quantized_decomposed",
            "quantization",
            "sparse",
        ),
        *("rngprims", "debugprims", "inductor", "inductor_prims", "mkl", "mkldnn", "mkldnn_prepacked"),
        *(
            "onednn",
            "onnx",
            "onnx_symbolic",
            "xnnpack",
            "c10d",
            "c10d_functional",
            "profiler",
            "static_runtime",
        ),
        *("streams", "symm_mem", "fsdp", "higher_order", "flex_lib", "export", "debug_mode_ops", "cuda"),
        *("_c10d_functional", "_c10d_functional_autograd", "_dtensor", "_native", "_quantized", "_test"),
        *("torchao", "dim_order_ops", "et_copy", "executorch_prim"),
        *("pteron_dim_order", "pteron_et_copy", "pteron_preserved", "pteron_quantized"),
    }
)

# torch.library has no annotations.
_library: Any = torch.library.Library(LIBRARY_NAMESPACE, "DEF")  # type: ignore[no-untyped-call]
# Operators of our library → the operators that they stand for.
_shown: dict[str, str] = {}


def is_custom_name(name: str) -> bool:
    """Whether the operator `namespace::operator` is of a library that is neither PyTorch's nor ours."""
    return name.split("::")[0] not in _KNOWN


def is_custom(op: OpOverload) -> bool:
    """Whether `op`, an overload of PyTorch or of our out variants, is a custom operator's."""
    return is_custom_name(op._schema.name)


def shown_name(operator: str) -> str:
    """The custom operator that an operator of our library stands for: `namespace::operator`."""
    return _shown[operator]


def refusal(op: OpOverload) -> str | None:
    """Why a custom operator cannot be called from a program file; None where it can."""
    schema = op._schema
    written = [argument.name for argument in schema.arguments if _is_written(argument)]
    if written:
        return (
            f"changes its argument {written[0]!r}; a custom operator in a program is functional: let it "
            "return the new value, and copy it where it belongs in the model (buffer.copy_(...))"
        )
    if any(argument.alias_info is not None for argument in (*schema.arguments, *schema.returns)):
        return "returns a view of an argument; let it return a tensor of its own"
    if len(schema.returns) > 1 and any(str(returned.type) == "List[Tensor]" for returned in schema.returns):
        return "returns a list beside other results; let it return tensors, or one list of tensors"
    for returned in schema.returns:
        if str(returned.type) not in ("Tensor", "List[Tensor]"):
            return f"returns {returned.type}; let it return tensors, or a list of tensors"
    if not schema.returns:
        return "returns nothing, and has no effect in a program"
    return None


def _is_written(argument: torch.Argument) -> bool:
    return argument.alias_info is not None and bool(argument.alias_info.is_write)


@functools.cache
def made_out_variant(op: OpOverload) -> OpOverload:
    """An out variant of a functional custom operator that has none of its own: of the same arguments, and
    `out`, or `out0`, `out1`, ... for several results.

    Raises `MissingOutVariantError` that says why an operator can have none.
    """
    reason = refusal(op)
    if reason is not None:
        raise MissingOutVariantError(f"{op} cannot be called from a program: it {reason}", operator=str(op))
    name = op._schema.name.replace("::", "_") + f"_{len(_shown)}"
    overload = "out" if op._overloadname == "default" else f"{op._overloadname}_out"
    names, declared, returned = _outputs(op._schema)
    _library.define(f"{name}.{overload}({_arguments(op._schema)}{declared}) -> {returned}")
    _library.impl(f"{name}.{overload}", _implementation(op, names), "CompositeExplicitAutograd")
    _shown[name] = op._schema.name
    made: OpOverload = getattr(getattr(getattr(torch.ops, LIBRARY_NAMESPACE), name), overload)
    return made


def _arguments(schema: torch._C.FunctionSchema) -> str:
    text = str(schema)
    inside = text[text.index("(") + 1 : text.rindex(") -> ")]
    if any(argument.kwarg_only for argument in schema.arguments):
        return f"{inside}, "
    return f"{inside}, *, " if inside else "*, "


def _outputs(schema: torch._C.FunctionSchema) -> tuple[list[str], str, str]:
    """(names of the outputs, their declaration, the returns)."""
    taken = {argument.name for argument in schema.arguments}
    stem = next(stem for stem in ("out", "out_", "result_out") if stem not in taken)
    if len(schema.returns) == 1:
        if str(schema.returns[0].type) != "Tensor":
            return [stem], f"Tensor(a!)[] {stem}", "()"
        return [stem], f"Tensor(a!) {stem}", "Tensor(a!)"
    names = [f"{stem}{position}" for position in range(len(schema.returns))]
    marks = [f"Tensor({_mark(position)}!)" for position in range(len(names))]
    declared = ", ".join(f"{mark} {name}" for mark, name in zip(marks, names, strict=True))
    return names, declared, f"({', '.join(marks)})"


def _mark(position: int) -> str:
    return chr(ord("a") + position % 26) * (1 + position // 26)


def _implementation(op: OpOverload, names: list[str]) -> Callable[..., Any]:
    def write(*args: Any, **kwargs: Any) -> Any:
        outs = [kwargs.pop(name) for name in names]
        result = op(*args, **kwargs)
        if isinstance(outs[0], (list, tuple)):
            written, results = list(outs[0]), list(result)
        else:
            written, results = outs, [result] if isinstance(result, torch.Tensor) else list(result)
        for out, value in zip(written, results, strict=True):
            out.resize_(value.shape, memory_format=torch.preserve_format).copy_(value)
        if isinstance(outs[0], (list, tuple)):
            return None
        return outs[0] if len(outs) == 1 else tuple(outs)

    return write
