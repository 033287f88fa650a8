"""Settings of the compile pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from torch._ops import OpOverload


@dataclass
class EdgeCompileConfig:
    """Settings of `to_edge`.

    `_check_ir_validity`: verify the graph at the core ATen and edge stages.
    `_skip_dim_order`: keep `_to_copy`, `clone` and `empty` instead of the operators that state a dimension
    order.
    `_core_aten_ops_exception_list`: PyTorch overloads that may stay though they are not core ATen.
    `preserve_ops`: PyTorch overloads that must not be decomposed. None is an empty list, in both.
    `keep_noops`: keep clones, expansions and reshapes that change neither data nor layout, as ExecuTorch
    does. They split partitions of backends that do not take them; with them a vendor's blobs are the same
    bytes as ExecuTorch's.
    """

    _check_ir_validity: bool = True
    _skip_dim_order: bool = False
    _core_aten_ops_exception_list: Sequence[OpOverload] = field(default_factory=list)
    preserve_ops: Sequence[OpOverload] = field(default_factory=list)
    keep_noops: bool = False

    def __post_init__(self) -> None:
        for name in ("_core_aten_ops_exception_list", "preserve_ops"):
            if getattr(self, name) is None:
                setattr(self, name, [])
            given = getattr(self, name)
            if not isinstance(given, Iterable):
                raise TypeError(
                    f"EdgeCompileConfig.{name}: expected a list of PyTorch operator overloads, got {given!r}"
                )
            for op in given:
                if not isinstance(op, OpOverload):
                    raise TypeError(
                        f"EdgeCompileConfig.{name}: expected PyTorch operator overloads "
                        f"(torch.ops.aten.linear.default), got {op!r}"
                    )
