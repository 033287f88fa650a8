"""Backends from other packages, compiled or not: what is installed, and loading it on request.

A package offers a backend in the entry-point group `pteron.backends`: the name is the backend's id, the
object is what `pteron.register_backend` takes (a capsule of the C interface in `pteron_backend.h`, or an
object with `init`). Programs cannot cause anything to be loaded: only `load` does.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pteron import _native

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["GROUP", "get_include", "installed", "load"]

GROUP = "pteron.backends"


def installed() -> dict[str, str]:
    """Ids of the backends that installed packages offer, each with its package and version."""
    return {name: _package(point) for name, point in sorted(_points().items())}


def load(name: str, *, runtime: _native.Runtime | None = None, replace: bool = False) -> None:
    """Imports the package that offers the backend `name`, and registers it with `runtime` (None: the
    default).

    LookupError when no installed package offers it; what the import raises comes out.
    """
    points = _points()
    if name not in points:
        known = ", ".join(sorted(points)) or "none"
        raise LookupError(f"no installed package offers the backend {name!r} (there are: {known})")
    _native.register_backend(name, points[name].load(), runtime=runtime, replace=replace)


def get_include() -> str:
    """The folder of `pteron_backend.h`, for the compiler of a backend in C or C++ (`include_dirs=[...]`)."""
    return str(Path(__file__).parent / "include")


def _points() -> dict[str, EntryPoint]:
    # Imported here: `import pteron` takes milliseconds, and seldom needs it.
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=GROUP)}


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else "unknown"
