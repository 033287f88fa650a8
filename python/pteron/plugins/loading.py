"""Loading what installed packages offer, when somebody asks for it."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pteron import _native
from pteron.plugins.installed import GROUP, PARTITIONERS, installed, package_of, points, run_half

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_LOADING = threading.RLock()


def load(
    name: str,
    *,
    runtime: _native.Runtime | None = None,
    replace: bool = False,
    distribution: str | None = None,
) -> None:
    """Imports the package that offers the backend `name`, and registers it with `runtime` (None: the
    default).

    Libraries are opened with local symbols, whatever `sys.getdlopenflags` says: what a plugin brings along is
    not seen by other plugins.

    Args:
        replace: take the place of a backend of the same name.
        distribution: the package to take it from, where several offer the name.

    Raises:
        LookupError: no installed package offers it, or several do and `distribution` names none of them.
        OSError: it would run with a library that another plugin has brought along, in place of its own of the
            same name.
        Exception: what the import raises comes out.
    """
    point = _chosen(GROUP, "backend", name, distribution)
    library, interface = run_half(point)
    if library is not None and interface is not None:
        # Imported here: no program without native plugins needs it.
        from pteron.plugins.brought_along import refuse_swapped

        refuse_swapped(library)
    with _local_symbols():
        backend = point.load()
    _native.register_backend(name, backend, runtime=runtime, replace=replace)


def load_needed(program: _native.Program, *, runtime: _native.Runtime | None = None) -> tuple[str, ...]:
    """Loads the backends that methods of `program` need, that `runtime` (None: the default; the one that the
    program was loaded into) has not, and that installed packages offer.

    The program chooses which of the installed packages are imported: for files of others, name the backends
    and use `load`.

    Returns: the names of what was loaded, in order. Backends that nobody offers are left out: loading their
    method says so.
    """
    registered = set((runtime or _native.Runtime.shared()).backends)
    needed = dict.fromkeys(name for method in program.methods for name in program.backends(method))
    offers = installed()
    loaded = tuple(name for name in needed if name not in registered and name in offers)
    for name in loaded:
        load(name, runtime=runtime)
    return loaded


def load_partitioner(name: str, *, distribution: str | None = None) -> Any:
    """Imports the compile half of the backend `name`; the class of its partitioner.

    Raises: as `load`.
    """
    with _local_symbols():
        return _chosen(PARTITIONERS, "partitioner", name, distribution).load()


def _chosen(group: str, noun: str, name: str, distribution: str | None) -> EntryPoint:
    known = points(group)
    found = [point for point in known if point.name == name]
    if not found:
        names = ", ".join(dict.fromkeys(point.name for point in known)) or "none"
        raise LookupError(f"no installed package offers the {noun} {name!r} (there are: {names})")
    chosen = [point for point in found if distribution in (None, point.dist.name if point.dist else None)]
    if len(chosen) != 1:
        packages = ", ".join(map(package_of, found))
        hint = "pass distribution= with the name of one, or uninstall the others"
        wanted = (
            "several installed packages offer" if distribution is None else f"{distribution} does not offer"
        )
        raise LookupError(f"{wanted} the {noun} {name!r} (these do: {packages}); {hint}")
    return chosen[0]


@contextmanager
def _local_symbols() -> Iterator[None]:
    """Extension modules that are imported meanwhile keep their symbols to themselves."""
    with _LOADING:
        before = sys.getdlopenflags()
        sys.setdlopenflags(os.RTLD_NOW | os.RTLD_LOCAL)
        try:
            yield
        finally:
            sys.setdlopenflags(before)
