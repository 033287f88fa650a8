"""Makes the paths of `module_paths` importable."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from pteron.compat.module_paths import MODULE_PATHS, Source

#: Under this prefix the table is always importable.
PREFIX = "pteron.compat.executorch"
#: The prefix that `install` adds.
TOP_LEVEL = "executorch"


class _AliasModule(ModuleType):
    """A module whose names live elsewhere; nothing is imported until one of them is asked for."""

    _sources: tuple[Source, ...] = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        for source in self._sources:
            module, renamed = (source, None) if isinstance(source, str) else source
            if renamed is not None and name not in renamed:
                continue
            home = importlib.import_module(module)
            found = name if renamed is None else renamed[name]
            if hasattr(home, found):
                return getattr(home, found)
        where = ", ".join(source if isinstance(source, str) else source[0] for source in self._sources)
        raise AttributeError(
            f"{self.__name__} has no name {name!r} in pteron"
            + (f"; looked in {where}" if where else "; it is a package here")
        )

    def __setattr__(self, name: str, value: Any) -> None:
        # Importing `exir.capture._config` would put the module `exir.capture` in the place of the function
        # that `from ...exir import capture` means.
        if isinstance(value, _AliasModule) and any(
            not isinstance(source, str) and name in source[1] for source in self._sources
        ):
            return
        super().__setattr__(name, value)


class PathFinder(MetaPathFinder, Loader):
    """Finds `<prefix>.<path in the table>`, and the packages above it."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of an alias module; None for paths outside the prefix."""
        if fullname != self.prefix and not fullname.startswith(self.prefix + "."):
            return None
        inside = fullname[len(self.prefix) + 1 :]
        is_package = inside == "" or any(known.startswith(inside + ".") for known in MODULE_PATHS)
        if not is_package and inside not in MODULE_PATHS:
            # Without this, a path that is missing here would be looked for in the package that we stand in
            # for.
            raise ModuleNotFoundError(
                f"{fullname}: pteron has no counterpart of this module; the table is "
                "pteron.compat.module_paths",
                name=fullname,
            )
        return ModuleSpec(fullname, self, is_package=is_package)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """An alias module for the path."""
        module = _AliasModule(spec.name)
        module._sources = MODULE_PATHS.get(spec.name[len(self.prefix) + 1 :], ())
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: names are found when they are asked for."""


def install(*, replace: bool = False) -> None:
    """Makes `import executorch...` give our modules.

    Args:
        replace: do so even where the real package can be imported. Modules of it that were imported before
            stay as they are in whoever holds them.

    Raises:
        RuntimeError: the real `executorch` package is there and `replace` is False.
    """
    if is_installed():
        return
    if not replace and (TOP_LEVEL in sys.modules or importlib.util.find_spec(TOP_LEVEL) is not None):
        raise RuntimeError(
            "pteron.compat.install: the executorch package is installed, and its import paths are its own. "
            "Import from pteron.compat.executorch instead, or call install(replace=True)"
        )
    _forget_modules()
    sys.meta_path.insert(0, PathFinder(TOP_LEVEL))


def uninstall() -> None:
    """Undoes `install`."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not _is_ours(finder, TOP_LEVEL)]
    _forget_modules()


def is_installed() -> bool:
    """Whether `import executorch` gives our modules."""
    return any(_is_ours(finder, TOP_LEVEL) for finder in sys.meta_path)


def _is_ours(finder: object, prefix: str) -> bool:
    return isinstance(finder, PathFinder) and finder.prefix == prefix


def _forget_modules() -> None:
    for name in [name for name in sys.modules if name == TOP_LEVEL or name.startswith(TOP_LEVEL + ".")]:
        del sys.modules[name]


if not any(_is_ours(finder, PREFIX) for finder in sys.meta_path):
    sys.meta_path.append(PathFinder(PREFIX))
