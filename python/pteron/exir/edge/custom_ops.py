"""Custom operators: those of libraries that neither PyTorch nor this package defines.

No kernel table lists them. A program calls them by their out variant, `my_ns::my_op.out`; one that has none
gets one here, made from its schema, so that the graph goes through the pipeline as any other. The torch
library behind those has a name of its own: the operator's library stays as its owner made it.
"""

from __future__ import annotations

import functools
import re
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
# Operators of our library (out variants, functional forms) → the operators that they stand for.
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


def changed_arguments(op: OpOverload) -> list[torch.Argument]:
    """The arguments that `op` writes to, in the order of its schema."""
    return [argument for argument in op._schema.arguments if _is_written(argument)]


@functools.cache
def functional_form(op: OpOverload) -> OpOverload | None:
    """An operator that computes what `op` does and changes no argument: its results are those of `op`, then
    the new values of the arguments that `op` changes. None where these are lists or may be absent, or a
    result is no tensor.
    """
    schema, changed = op._schema, changed_arguments(op)
    shares = [a for a in (*schema.arguments, *schema.returns) if a.alias_info is not None]
    if any(str(value.type) != "Tensor" for value in (*changed, *schema.returns)) or len(shares) > len(
        changed
    ):
        return None
    name = schema.name.replace("::", "_") + f"_functional_{len(_shown)}"
    text = str(schema)
    inside = re.sub(r"\(\w+!\)", "", text[text.index("(") + 1 : text.rindex(") -> ")])
    returned = ", ".join(["Tensor"] * (len(schema.returns) + len(changed)))
    full = name if op._overloadname == "default" else f"{name}.{op._overloadname}"
    _library.define(f"{full}({inside}) -> ({returned})")
    _library.impl(full, _on_copies(op), "CompositeExplicitAutograd")
    _shown[name] = schema.name
    made: OpOverload = getattr(
        getattr(getattr(torch.ops, LIBRARY_NAMESPACE), name), op._overloadname or "default"
    )
    return made


def _on_copies(op: OpOverload) -> Callable[..., Any]:
    changed = [(at, a.name) for at, a in enumerate(op._schema.arguments) if _is_written(a)]

    def compute(*args: Any, **kwargs: Any) -> Any:
        given, copies = list(args), []
        for at, name in changed:
            copy = (given[at] if at < len(given) else kwargs[name]).clone()
            copies.append(copy)
            if at < len(given):
                given[at] = copy
            else:
                kwargs[name] = copy
        result = op(*given, **kwargs)
        results = [result] if isinstance(result, torch.Tensor) else list(result or ())
        both = (*results, *copies)
        return both[0] if len(both) == 1 else both

    return compute


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
    shown = _shown.get(op._schema.name.removeprefix(f"{LIBRARY_NAMESPACE}::"), op._schema.name)
    name = shown.replace("::", "_") + f"_{len(_shown)}"
    overload = "out" if op._overloadname == "default" else f"{op._overloadname}_out"
    names, declared, returned = _outputs(op._schema)
    _library.define(f"{name}.{overload}({_arguments(op._schema)}{declared}) -> {returned}")
    _library.impl(f"{name}.{overload}", _implementation(op, names), "CompositeExplicitAutograd")
    _shown[name] = shown
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
