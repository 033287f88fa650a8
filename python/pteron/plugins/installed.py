"""What installed packages offer, found from their metadata and files: nothing of theirs is imported."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pteron import _native

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.metadata import EntryPoint

#: Entry points with the run half of a backend, under the backend's id.
GROUP = "pteron.backends"
#: Entry points with the compile half of a backend, a `Partitioner` class, under the backend's id.
PARTITIONERS = "pteron.partitioners"


@dataclass(frozen=True)
class InstalledBackend:
    """A backend that an installed package offers.

    Attributes:
        name: the id that programs carry.
        distribution: the package, by the name that it is installed under.
        version: its version.
        kind: "native" for a library of the C interface, "Python" for a run half written in Python.
        interface: major version of the C interface that the library was built for; None for "Python".
        path: the library or the module; None where the file cannot be found without importing the package.
        has_partitioner: whether the package offers the compile half, too.
        is_loaded: whether a backend of this name is registered.
    """

    name: str
    distribution: str
    version: str
    kind: str
    interface: int | None
    path: str | None
    has_partitioner: bool
    is_loaded: bool


def installed() -> dict[str, str]:
    """Ids of the backends that installed packages offer, each with its package and version."""
    return _offers(GROUP)


def details(*, runtime: _native.Runtime | None = None) -> tuple[InstalledBackend, ...]:
    """All backends that installed packages offer, sorted by name; `runtime` (None: the default) says which
    are loaded.

    Reads metadata and files of the packages and imports nothing of them.
    """
    registered = (runtime or _native.Runtime.shared()).backends
    partitioners = {(point.name, package_of(point)) for point in points(PARTITIONERS)}
    found = []
    for point in points(GROUP):
        path, interface = run_half(point)
        name, version = (point.dist.name, point.dist.version) if point.dist else ("unknown", "unknown")
        found.append(
            InstalledBackend(
                name=point.name,
                distribution=name,
                version=version,
                kind="Python" if interface is None else "native",
                interface=interface,
                path=None if path is None else str(path),
                has_partitioner=(point.name, package_of(point)) in partitioners,
                is_loaded=point.name in registered,
            )
        )
    return tuple(found)


def offer_of(name: str) -> str | None:
    """What to do where a program needs the backend `name`, which is not registered; None where no installed
    package offers it.
    """
    offer = _offers(GROUP).get(name)
    return offer and f"{offer} is installed and provides it: load it with pteron.plugins.load({name!r})"


def partitioner_offer_of(name: str) -> str | None:
    """What to do where the compile half of the backend `name` is not imported; None where no installed
    package offers it.
    """
    offer = _offers(PARTITIONERS).get(name)
    return offer and (
        f"{offer} is installed and provides it: pteron.plugins.load_partitioner({name!r}) imports it"
    )


def points(group: str) -> list[EntryPoint]:
    """Entry points of a group, sorted by name."""
    # Imported here: `import pteron` takes milliseconds, and seldom needs it.
    from importlib.metadata import entry_points

    return sorted(entry_points(group=group), key=lambda point: (point.name, package_of(point)))


def package_of(point: EntryPoint) -> str:
    """Package and version of an entry point."""
    return f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown package"


def _offers(group: str) -> dict[str, str]:
    offers: dict[str, list[str]] = {}
    for point in points(group):
        offers.setdefault(point.name, []).append(package_of(point))
    return {name: ", ".join(packages) for name, packages in offers.items()}


def run_half(point: EntryPoint) -> tuple[Path | None, int | None]:
    """The file of the run half, and the version of the C interface if it is a library of that."""
    module = _module_file(point.module)
    if module is None:
        return None, None
    first = point.module.partition(".")[0]
    package = next((folder for folder in module.parents if folder.name == first), None)
    libraries = [module] if module.suffix != ".py" else sorted(package.rglob("*.so*")) if package else []
    for library in libraries:
        interface = _interface_of(library)
        if interface is not None:
            return library, interface
    return module, None


def _module_file(name: str) -> Path | None:
    """The file of a module, found without importing it or the packages that it is in."""
    from importlib.machinery import EXTENSION_SUFFIXES
    from importlib.util import find_spec

    first, *rest = name.split(".")
    spec = find_spec(first)
    if spec is None or not rest:
        return Path(spec.origin) if spec and spec.origin else None
    for folder in spec.submodule_search_locations or ():
        stem = Path(folder, *rest)
        for file in _candidates(stem, EXTENSION_SUFFIXES):
            if file.is_file():
                return file
    return None


def _candidates(stem: Path, suffixes: list[str]) -> Iterator[Path]:
    yield stem / "__init__.py"
    yield stem.with_name(f"{stem.name}.py")
    for suffix in suffixes:
        yield stem.with_name(stem.name + suffix)


def _interface_of(library: Path) -> int | None:
    """The version of the C interface that a library has the name of; None for other libraries."""
    import mmap
    import re

    if not library.is_file() or library.stat().st_size == 0:
        return None
    with (
        library.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as contents,
    ):
        # The name of the capsule, or that of the function which `open_library` calls.
        found = re.search(rb"pteron[._]backend[._]v(\d{1,4})\0", contents)
        return int(found[1]) if found else None
