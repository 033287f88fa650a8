"""One setting that travels from the caller of `to_backend` to the backend, in the compile half and in the
file.
"""

from __future__ import annotations

from collections.abc import Iterable

from pteron.exir.schema import CompileSpec

__all__ = ["CompileSpec", "MethodCompileSpec", "check_compile_specs"]


class MethodCompileSpec(list[CompileSpec]):
    """The compile specs of one method: a list of `CompileSpec`, under the name that older examples import."""

    def __init__(self, specs: Iterable[CompileSpec] = ()) -> None:
        super().__init__(specs)
        check_compile_specs(self)


def check_compile_specs(specs: object) -> list[CompileSpec]:
    """Returns `specs` if it is a list of `CompileSpec` whose values are bytes, else raises TypeError."""
    if not isinstance(specs, (list, tuple)):
        raise TypeError(f"compile specs: expected a list of CompileSpec, got {type(specs).__name__}")
    for index, spec in enumerate(specs):
        # Duck-typed on purpose: specs built with the peer's class of the same shape are as good as ours.
        key, value = getattr(spec, "key", None), getattr(spec, "value", None)
        if not isinstance(key, str) or not isinstance(value, (bytes, bytearray)):
            raise TypeError(
                f"compile spec {index}: expected CompileSpec(key: str, value: bytes), got {spec!r}; "
                "encode other types to bytes first"
            )
    return specs if isinstance(specs, list) else list(specs)
