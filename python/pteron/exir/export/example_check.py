"""The program on its example against `exported.module()`: the last step of `pteron.export`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.export import ExportedProgram
from torch.fx import GraphModule

import pteron
from pteron.errors import ExampleMismatchError
from pteron.torch_form import torch_where_loaded

# The largest difference that rounding explains, as a part of the largest number of an output.
_ALLOWED = {
    torch.float64: 1e-9,
    torch.complex128: 1e-9,
    torch.float32: 1e-4,
    torch.complex64: 1e-4,
    torch.float16: 1e-2,
    torch.bfloat16: 5e-2,
}
_ALLOWED_OF_NARROW_FLOATS = 0.25
# Where the program quantises what it computes: a number between two integers goes either way by its last bit,
# a step of one in 127 or 255 of its tensor, and the layers behind add to it.
_ALLOWED_OF_STEPS = 5e-2
_QUANTISING = ("quantized_decomposed.quantize_per", "torchao.quantize_affine")


@dataclass(frozen=True)
class OutputDifference:
    """One output: its name, its largest difference as a part of its largest number, and what was allowed.

    `what` says what differs other than numbers (shape, dtype, a value that is no tensor); empty for numbers.
    """

    name: str
    difference: float
    allowed: float
    what: str = ""

    @property
    def is_close(self) -> bool:
        """Whether the output is as expected."""
        return not self.what and self.difference <= self.allowed

    def __str__(self) -> str:
        if self.what:
            return f"output '{self.name}': {self.what}"
        return (
            f"output '{self.name}': differs by {self.difference:.3g} of its largest number, "
            f"allowed {self.allowed:.3g}"
        )


@dataclass(frozen=True)
class CheckResult:
    """What the check found: the outputs, or why there was no check (`skipped`)."""

    outputs: tuple[OutputDifference, ...] = ()
    skipped: str | None = None

    def __str__(self) -> str:
        if self.skipped is not None:
            return f"not made: {self.skipped}"
        worst = max(self.outputs, key=lambda output: output.difference, default=None)
        if worst is None:
            return "passed: the method has no outputs"
        return (
            f"passed: {len(self.outputs)} outputs, the largest difference is {worst.difference:.3g} "
            f"('{worst.name}')"
        )


def check_example(
    exported: ExportedProgram,
    flat_inputs: Sequence[Any],
    arguments: tuple[tuple[Any, ...], Mapping[str, Any]],
    file: bytes,
    data_files: Mapping[str, bytes],
    tolerance: float | None,
) -> CheckResult:
    """Runs the file on the example and compares every output with what the captured program gives.

    `arguments`: the example as the model takes it; `flat_inputs`: the same as a flat list. `tolerance`: the
    largest difference as a part of an output's largest number, None for what rounding explains.

    Raises `ExampleMismatchError` that names every output which differs.
    """
    program = pteron.load(file, data=dict(data_files) or None)
    reason = _reason_to_skip(program)
    if reason is not None:
        return CheckResult(skipped=reason)
    args, kwargs = pytree.tree_map_only(torch.Tensor, torch.clone, arguments)
    with torch.no_grad():
        expected = pytree.tree_leaves(_module_with_own_state(exported)(*args, **kwargs))
    inputs = [value.detach().clone() if isinstance(value, torch.Tensor) else value for value in flat_inputs]
    method = program.load_method("forward")
    got = [torch_where_loaded(value) for value in method.execute(inputs)]
    steps = _ALLOWED_OF_STEPS if _quantises(exported) else 0.0
    found = tuple(
        _compared(spec.name, ours, theirs, tolerance, steps)
        for spec, ours, theirs in zip(method.outputs, got, expected, strict=True)
    )
    wrong = [output for output in found if not output.is_close]
    if wrong:
        raise ExampleMismatchError(
            "export: on the example inputs the program gives another result than exported.module():\n"
            + "\n".join(f"  {output}" for output in wrong),
            method="forward",
            outputs=tuple(output.name for output in wrong),
            difference=max(output.difference for output in wrong),
            hint="if the program is meant to differ (a quantised delegate), give tolerance=...; otherwise "
            "export without partitioners, and with check=False to compare other inputs by hand",
        )
    return CheckResult(found)


def _module_with_own_state(exported: ExportedProgram) -> torch.nn.Module:
    """`exported.module()` on copies of its buffers: it would update the model's own."""
    module: torch.nn.Module = exported.module()
    copies: dict[int, torch.Tensor] = {}
    for owner in module.modules():
        for name, buffer in owner._buffers.items():
            if buffer is not None:
                owner._buffers[name] = copies.setdefault(id(buffer), buffer.clone())
    return module


def _quantises(exported: ExportedProgram) -> bool:
    """Does it make integers of what it computes?"""
    graphs = (module.graph for module in exported.graph_module.modules() if isinstance(module, GraphModule))
    targets = (node.target for graph in graphs for node in graph.nodes if node.op == "call_function")
    return any(
        isinstance(target, torch._ops.OpOverload) and str(target).startswith(_QUANTISING)
        for target in targets
    )


def _reason_to_skip(program: pteron.Program) -> str | None:
    runtime = pteron.Runtime.shared()
    for backend in program.backends("forward"):
        if not runtime.is_available(backend):
            why = runtime.unavailable_reason(backend)
            return f"backend {backend} is not here to run it" + (f" ({why})" if why else "")
    known = set(runtime.operators)
    missing = [name for name in program.operators("forward") if name not in known]
    if missing:
        return f"no kernel is registered here for {', '.join(missing)}"
    random = [name for name in program.operators("forward") if _draws_random_numbers(name)]
    return f"the model draws random numbers ({', '.join(random)})" if random else None


def _draws_random_numbers(operator: str) -> bool:
    """`operator`: "namespace::name.overload", as a file names it."""
    name, _, overload = operator.partition(".")
    namespace, _, name = name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), name, None)
    found = getattr(packet, overload or "default", None)
    return torch.Tag.nondeterministic_seeded in getattr(found, "tags", ())


def _compared(name: str, ours: Any, expected: Any, tolerance: float | None, steps: float) -> OutputDifference:
    if not isinstance(expected, torch.Tensor) or not isinstance(ours, torch.Tensor):
        same = type(ours) is type(expected) and ours == expected
        return OutputDifference(name, 0.0, 0.0, "" if same else f"{ours!r} in place of {expected!r}")
    if ours.shape != expected.shape or ours.dtype != expected.dtype:
        return OutputDifference(name, 0.0, 0.0, f"{_form(ours)} in place of {_form(expected)}")
    allowed = _allowed(expected.dtype) if tolerance is None else tolerance
    if tolerance is None and expected.is_floating_point():
        allowed = max(allowed, steps)
    return OutputDifference(name, _difference(ours, expected), allowed)


def _allowed(dtype: torch.dtype) -> float:
    if not dtype.is_floating_point and not dtype.is_complex:
        return 0.0
    return _ALLOWED.get(dtype, _ALLOWED_OF_NARROW_FLOATS)


def _form(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _difference(ours: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference by the largest finite number expected; infinite where one is not a number."""
    wide = torch.complex128 if expected.is_complex() else torch.float64
    ours, expected = ours.to(wide), expected.detach().to(wide)
    same = (ours == expected) | (ours.isnan() & expected.isnan())
    if bool(same.all()):
        return 0.0
    off = (ours - expected).abs()[~same]
    if not bool(off.isfinite().all()):
        return float("inf")
    size = expected[expected.isfinite()].abs()
    largest = float(size.max()) if size.numel() else 0.0
    return float(off.max()) / largest if largest else float(off.max())
