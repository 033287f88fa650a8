"""Settings of `to_executorch`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from pteron.errors import ExportError
from pteron.exir.emit.external_tags import ExternalTags, TagFunction
from pteron.exir.memory.memory_planning_pass import MINIMUM_ALIGNMENT, MemoryPlanningPass
from pteron.exir.passes.exported_program_pass import ExportedProgramPassBase
from pteron.exir.passes.fold_constants import MOST_MOVED, FoldConstants
from pteron.exir.passes.optimizations import FOLD_CONSTANTS, OPTIMIZATIONS, folds
from pteron.exir.passes.propagate_device_config import PropagateDeviceConfig
from pteron.exir.passes.run_graph_passes import GraphPass, graph_passes
from pteron.exir.passes.sym_shape_eval import ConstraintBasedSymShapeEvalPass
from pteron.exir.target.kernel_lists import kernel_names
from pteron.export_defaults import DEFAULTS

ShapeEvaluation = ConstraintBasedSymShapeEvalPass


class DynamicMemoryPlanningMode(IntEnum):
    """How memory of tensors with varying shape is planned."""

    UPPER_BOUND = 0
    SYMBOLIC = 1


# Settings of ExecuTorch that mean something this pipeline does not do: the only value that is taken, which
# asks for nothing, and what another would do and how to go without it.
_ONLY_VALUE: dict[str, tuple[Any, str]] = {
    "to_out_var_pass": (
        None,
        "it would choose the out variants of operators, which are chosen here when the program is written; "
        "graph passes of your own go into passes=",
    ),
    "dynamic_memory_planning_mode": (
        DynamicMemoryPlanningMode.UPPER_BOUND,
        "it would find memory while the program runs; here memory is planned for the largest extents, which "
        "Dim(max=...) states",
    ),
    "reinplace_extra_ops": (
        None,
        "it would let further operators write over their inputs; here the new value of a buffer is written "
        "in place wherever that is safe (run_reinplace_pass), whatever the operator",
    ),
    "do_quant_fusion_and_const_prop": (
        False,
        "it would fuse quantised operators and compute constants; here optimize=True computes constants, and "
        "quantised operators are fused when the program is loaded",
    ),
}


@dataclass
class ExecutorchBackendConfig:
    """Settings of `to_executorch`.

    `kernels`: what the target can run; an operator that is not among them is an error at export. "pteron",
    "executorch-portable", or an iterable of names ("aten::add.out").
    `passes`: graph passes (one, or a list) that run first, over every method.
    `optimize`: what runs after them over the operators that no backend took: True for
    `pteron.exir.passes.OPTIMIZATIONS`, False for nothing, or passes of your own choice, such as a part of
    that list.
    `memory_planning_pass`: settings of memory planning, or a dict from method name to settings.
    `extract_delegate_segments`: put delegate blobs behind the program table, so that they can be mapped by
    themselves.
    `segment_alignment`, `constant_tensor_alignment`, `delegate_alignment`: bytes, powers of two; None is
    the default.
    `packed_weights`: store weights a second time in the form in which the kernels of this package read them,
    so that load packs nothing: the file grows by about the size of its matrices and convolution weights.
    Needs kernels="pteron".
    `remove_view_copy`: let reshapes share memory where they can.
    `run_reinplace_pass`: let operators write the new value of a buffer into the buffer where that is safe,
    instead of copying it there at the end.
    `emit_stacktrace`: keep the Python frames of every instruction in the file, for tools that read them
    there; the source line is in `pteron.debug` in any case.
    `emit_mutable_buffer_names`: names of buffers are always in the file; must be set for
    `MemoryPlanningPass(alloc_mutable_buffers=False)`, as in ExecuTorch.
    `external_constants`: True puts the constants of the model into a data file (`.ptd`) beside the program; a
    function gets the graph node of each and returns the name of its file, or None for the program file.
    Constants that were written into the code stay in the program.
    `external_mutable_weights`: put the initial values of buffers that a method updates, and the parameters
    that a joint graph has a gradient of, into the default data file, `_default_external_constant.ptd`.
    `sym_shape_eval_pass`: None or ConstraintBasedSymShapeEvalPass, or a dict of these by method: memory is
    planned for the upper bounds of extents in any case.
    `propagate_device_config`: for delegates whose compile specs name a target device, which copies at the
    border of a method the caller spares; or a dict from method name to that.
    `enable_non_cpu_memory_planning`: plan what such delegates read and give in memories of their devices,
    with copies from and to the host. False plans all memory on the CPU, and only says which tensors are the
    device's.
    The fields named after ExecuTorch features that do not exist here accept their default only.
    """

    passes: GraphPass | Sequence[GraphPass] = field(default_factory=list)
    optimize: bool | Sequence[ExportedProgramPassBase] = True
    memory_planning_pass: MemoryPlanningPass | Mapping[str, MemoryPlanningPass] = field(
        default_factory=MemoryPlanningPass
    )
    extract_delegate_segments: bool = True
    segment_alignment: int = 128
    constant_tensor_alignment: int | None = None
    delegate_alignment: int | None = None
    remove_view_copy: bool = True
    emit_stacktrace: bool = False
    emit_mutable_buffer_names: bool = False
    external_constants: bool | TagFunction = False
    external_mutable_weights: bool = False
    do_quant_fusion_and_const_prop: bool = False
    run_reinplace_pass: bool = True
    propagate_device_config: PropagateDeviceConfig | Mapping[str, PropagateDeviceConfig] = field(
        default_factory=PropagateDeviceConfig
    )
    to_out_var_pass: None = None
    dynamic_memory_planning_mode: DynamicMemoryPlanningMode = DynamicMemoryPlanningMode.UPPER_BOUND
    sym_shape_eval_pass: ShapeEvaluation | Mapping[str, ShapeEvaluation] | None = None
    enable_non_cpu_memory_planning: bool = True
    reinplace_extra_ops: None = None
    kernels: str | Iterable[str] = "pteron"
    packed_weights: bool = False

    def __post_init__(self) -> None:
        self.passes = graph_passes(self.passes, "ExecutorchBackendConfig(passes=...)")
        if not isinstance(self.optimize, bool):
            self.optimize = _optimizations(self.optimize)
        if not isinstance(self.kernels, str):
            self.kernels = frozenset(self.kernels)
        elif self.kernels not in ("pteron", "executorch-portable"):
            kernel_names(self.kernels)
        for name, (only, reason) in _ONLY_VALUE.items():
            given = getattr(self, name)
            if given != only:
                raise ExportError(
                    f"ExecutorchBackendConfig({name}={given!r}) is not supported: {reason}; "
                    f"leave it at {only!r}",
                    argument=name,
                    expected=repr(only),
                    got=repr(given),
                )
        _require_upper_bounds(self.sym_shape_eval_pass)
        _require_device_configs(self.propagate_device_config)
        if self.packed_weights and self.kernels != "pteron":
            raise ExportError(
                f"ExecutorchBackendConfig(packed_weights=True, kernels={_shown(self.kernels)}): only this "
                "package's own kernels read packed weights",
                argument="packed_weights",
                expected='kernels="pteron"',
                got=_shown(self.kernels),
                hint='write one file per target: kernels="pteron" with packed weights, the other without',
            )
        if self.packed_weights and (self.external_constants or self.external_mutable_weights):
            raise ExportError(
                "ExecutorchBackendConfig(packed_weights=True) with external data: only programs that keep "
                "all their tensors inside can be stored packed",
                argument="packed_weights",
                expected="one of the two",
                got="both",
                hint="leave one of them out",
            )
        if not isinstance(self.external_constants, bool) and not callable(self.external_constants):
            raise ExportError(
                f"ExecutorchBackendConfig(external_constants={self.external_constants!r}): expected "
                "True, False, or a function from a graph node to a file name or None",
                argument="external_constants",
                expected="a bool or a function",
                got=repr(self.external_constants),
            )
        for name in ("segment_alignment", "constant_tensor_alignment", "delegate_alignment"):
            value = getattr(self, name)
            if value is not None and (value < 1 or value & (value - 1)):
                raise ExportError(
                    f"ExecutorchBackendConfig({name}={value}): expected a power of two, in bytes",
                    argument=name,
                    expected="a power of two",
                    got=str(value),
                )
        planned = self.memory_planning_pass
        for each in planned.values() if isinstance(planned, Mapping) else [planned]:
            if not isinstance(each, MemoryPlanningPass):
                raise ExportError(
                    "ExecutorchBackendConfig(memory_planning_pass=...): expected MemoryPlanningPass, got "
                    f"{each!r}; a planning algorithm goes into MemoryPlanningPass(memory_planning_algo=...)"
                )

    def external_tags(self) -> ExternalTags:
        """Which tensors go to data files."""
        return ExternalTags(self.external_constants, bool(self.external_mutable_weights))

    @property
    def optimizations(self) -> Sequence[ExportedProgramPassBase]:
        """The passes that `optimize` asks for.

        With `external_constants` the default leaves constants as they are: data files hold them under their
        names in the model, so that they can be exchanged. So it does after
        `pteron.compat.install(keep_constants=True)`.
        """
        if not isinstance(self.optimize, bool):
            return self.optimize
        if not self.optimize:
            return ()
        keeps_constants = bool(self.external_constants) or DEFAULTS.keep_constants
        chosen = tuple(each for each in OPTIMIZATIONS if not (keeps_constants and folds(each)))
        if self.kernels != "pteron":
            return chosen
        return tuple(
            FoldConstants(most_moved=MOST_MOVED) if each is FOLD_CONSTANTS else each for each in chosen
        )

    def require_methods(self, methods: Iterable[str]) -> None:
        """ExportError where a setting by method names one that is not among `methods`."""
        known = sorted(methods)
        for field_name in ("memory_planning_pass", "propagate_device_config"):
            given = getattr(self, field_name)
            for name in given if isinstance(given, Mapping) else ():
                if name not in known:
                    raise ExportError(
                        f"ExecutorchBackendConfig({field_name}=...): no method {name!r}; methods: {known}",
                        method=str(name),
                        argument=field_name,
                    )

    def planning_of(self, method: str) -> MemoryPlanningPass:
        """The memory planning settings of one method; the defaults where a dict does not name it."""
        planned = self.memory_planning_pass
        if isinstance(planned, Mapping):
            return planned.get(method) or MemoryPlanningPass()
        return planned

    def device_config_of(self, method: str) -> PropagateDeviceConfig:
        """The copies that the caller of one method spares; none where a dict does not name it."""
        given = self.propagate_device_config
        return given.get(method) or PropagateDeviceConfig() if isinstance(given, Mapping) else given

    def serialization_options(self) -> dict[str, Any]:
        """The keyword arguments of `serialize_program`."""
        return {
            "extract_delegate_segments": self.extract_delegate_segments,
            "segment_alignment": self.segment_alignment,
            "constant_tensor_alignment": self.constant_tensor_alignment or MINIMUM_ALIGNMENT,
            "delegate_alignment": self.delegate_alignment or MINIMUM_ALIGNMENT,
        }


def _require_upper_bounds(given: Any) -> None:
    for each in given.values() if isinstance(given, Mapping) else [given]:
        if each is not None and not isinstance(each, ConstraintBasedSymShapeEvalPass):
            raise ExportError(
                f"ExecutorchBackendConfig(sym_shape_eval_pass={given!r}) is not supported: memory is "
                "planned for the upper bounds of extents, since a plan for the sizes of the example inputs "
                "has no room for larger ones",
                argument="sym_shape_eval_pass",
                expected="None or ConstraintBasedSymShapeEvalPass()",
                got=repr(given),
                hint="leave it out, and give dimensions that vary a bound: torch.export.Dim(name, max=...)",
            )


def _require_device_configs(given: Any) -> None:
    for each in given.values() if isinstance(given, Mapping) else [given]:
        if not isinstance(each, PropagateDeviceConfig):
            raise ExportError(
                f"ExecutorchBackendConfig(propagate_device_config={given!r}): expected "
                "PropagateDeviceConfig, or a dict of them by method",
                argument="propagate_device_config",
                expected="PropagateDeviceConfig",
                got=repr(given),
                hint="the device itself stands in the compile specs of a delegate, under target_device",
            )


def _shown(kernels: str | Iterable[str]) -> str:
    return repr(kernels) if isinstance(kernels, str) else "(a list of operator names)"


def _optimizations(given: Any) -> tuple[ExportedProgramPassBase, ...]:
    listed = tuple(given) if isinstance(given, Iterable) else (given,)
    for each in listed:
        if not isinstance(each, ExportedProgramPassBase):
            raise TypeError(
                "ExecutorchBackendConfig(optimize=...): expected True, False or passes over exported "
                f"programs, got {type(each).__name__} {each!r}; passes over a GraphModule go into "
                "passes=[...]"
            )
    return listed
