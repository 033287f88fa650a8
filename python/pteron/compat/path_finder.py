"""Makes the paths of `module_paths` importable."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from pteron.compat.module_paths import IMPORTED_FOR_EFFECT, MODULE_PATHS, Source
from pteron.compat.refused_paths import FROM_WHEEL, REFUSED_NAMES, REPLACED, refusal_of
from pteron.export_defaults import DEFAULTS

#: Under this prefix the table is always importable.
PREFIX = "pteron.compat.executorch"
#: The prefix that `install` adds.
TOP_LEVEL = "executorch"

_REPLACED_NOW = tuple(f"{TOP_LEVEL}.{package}" for package in REPLACED)
_NOTHING = object()


_OWN_NAMES = ("_sources", "_inside", "_deleted")


class _AliasModule(ModuleType):
    """A module whose names live elsewhere; nothing is imported until one of them is asked for."""

    _sources: tuple[Source, ...] = ()
    _inside: str = ""
    #: Names deleted here, with their homes: `mock.patch` deletes a name before it sets the original.
    _deleted: dict[str, tuple[ModuleType, str]]

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._deleted = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        reason = REFUSED_NAMES.get(self._inside, {}).get(name)
        if reason is not None:
            # An AttributeError would become "cannot import name" without the reason.
            raise ImportError(f"{self.__name__}.{name} is not here: {reason}", name=self.__name__)
        home = self._home_of(name)
        if home is not None:
            return getattr(*home)
        below = f"{self._inside}.{name}" if self._inside else name
        if any(known == below or known.startswith(below + ".") for known in MODULE_PATHS):
            # Importing ExecuTorch's packages imports most of their modules.
            return importlib.import_module(f"{self.__name__}.{name}")
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
        is_own = name.startswith("__") or name in _OWN_NAMES or isinstance(value, ModuleType)
        home = None if is_own else self._deleted.pop(name, None) or self._home_of(name)
        if home is not None:
            # A name that a test replaces for a while is replaced for the code that uses it.
            setattr(*home, value)
        else:
            super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        home = None if name in self.__dict__ else self._home_of(name)
        if home is not None:
            delattr(*home)
            self._deleted[name] = home
        else:
            super().__delattr__(name)

    def _home_of(self, name: str) -> tuple[ModuleType, str] | None:
        """Our module that has the name, and its name there."""
        for source in self._sources:
            module, renamed = (source, None) if isinstance(source, str) else source
            if renamed is not None and name not in renamed:
                continue
            home = importlib.import_module(module)
            ours = name if renamed is None else renamed[name]
            found = getattr(home, ours, _NOTHING)
            # Without `renamed`, a module is a part of our package that has the name by chance, such as
            # `pteron.exir.memory`; modules are found by their paths.
            if found is not _NOTHING and (renamed is not None or not isinstance(found, ModuleType)):
                return home, ours
        return None


class PathFinder(MetaPathFinder, Loader):
    """Finds `<prefix>.<path in the table>`, the packages above it, and what an installed wheel has beside."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of an alias module, or of a module of the wheel; None for paths outside the prefix.

        Raises:
            ImportError: the module is one of a package that we replace, and is not here; the text says why.
        """
        if fullname != self.prefix and not fullname.startswith(self.prefix + "."):
            return None
        inside = fullname[len(self.prefix) + 1 :]
        is_package = inside == "" or any(
            known.startswith(inside + ".") for known in (*MODULE_PATHS, *FROM_WHEEL)
        )
        if is_package or inside in MODULE_PATHS:
            spec = ModuleSpec(fullname, self, is_package=is_package)
            if is_package and self.prefix == TOP_LEVEL:
                spec.submodule_search_locations = [*_wheel_folders(inside)]
            return spec
        reason = refusal_of(inside)
        if reason is not None:
            raise ModuleNotFoundError(f"{fullname}: {reason}", name=fullname)
        if self.prefix == TOP_LEVEL:
            found = _in_wheel(fullname)
            if found is not None:
                return found
        raise ModuleNotFoundError(
            f"{fullname}: pteron has no counterpart of this module, and no executorch wheel that has it is "
            f"importable as {TOP_LEVEL}; the table is pteron.compat.module_paths",
            name=fullname,
        )

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """An alias module for the path."""
        module = _AliasModule(spec.name)
        inside = spec.name[len(self.prefix) + 1 :]
        super(_AliasModule, module).__setattr__("_sources", MODULE_PATHS.get(inside, ()))
        super(_AliasModule, module).__setattr__("_inside", inside)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Imports what `IMPORTED_FOR_EFFECT` names, where ours stand for the package; names are found when
        they are asked for.
        """
        needed = IMPORTED_FOR_EFFECT.get(module.__name__[len(self.prefix) + 1 :])
        if needed is not None and self.prefix == TOP_LEVEL and _has_torch():
            importlib.import_module(needed)


def _has_torch() -> bool:
    """Whether PyTorch is installed: without it there are no operators and no backends to make known."""
    if "torch" in sys.modules:
        return sys.modules["torch"] is not None
    return importlib.util.find_spec("torch") is not None


def _wheel_folders(inside: str) -> list[str]:
    """Folders of an installed wheel that hold the package at a path; none without a wheel."""
    folders: list[str] = []
    for finder in sys.meta_path:
        if isinstance(finder, PathFinder):
            continue
        spec = finder.find_spec(TOP_LEVEL, None)
        if spec is not None and spec.submodule_search_locations is not None:
            folders = list(spec.submodule_search_locations)
            break
    return [str(Path(folder, *inside.split("."))) if inside else folder for folder in folders]


def _in_wheel(fullname: str) -> ModuleSpec | None:
    parent = fullname.rpartition(".")[0]
    loaded = sys.modules.get(parent)
    folders = list(getattr(loaded, "__path__", ())) or _wheel_folders(parent[len(TOP_LEVEL) + 1 :])
    return importlib.machinery.PathFinder.find_spec(fullname, folders)


def install(*, replace: bool = False, keep_constants: bool = False) -> None:
    """Makes `import executorch...` give our modules, and everything else of an installed wheel on top of
    them.

    docs/reference/executorch-modules.md lists what comes from where.

    Args:
        replace: do so even where modules of the real package, which ours replace, are imported already. They
            stay as they are in whoever holds them.
        keep_constants: programs hold the constants of the model as ExecuTorch's do: what depends on constants
            alone is computed in every run, unless a pass folds it. For code that looks at constants, values
            or sizes of a program. Holds until `uninstall`, also where the paths are installed already.

    Raises:
        RuntimeError: such modules are imported and `replace` is False.
    """
    if is_installed():
        DEFAULTS.keep_constants |= keep_constants
        return
    loaded = sorted(name for name in sys.modules if name.startswith(_REPLACED_NOW))
    if not replace and loaded:
        raise RuntimeError(
            f"pteron.compat.install: {loaded[0]} of the executorch package is imported already, so objects "
            "of both would meet. Call install() before anything is imported from executorch, import from "
            "pteron.compat.executorch instead, or call install(replace=True)"
        )
    DEFAULTS.keep_constants = keep_constants
    _forget_modules()
    sys.meta_path.insert(0, PathFinder(TOP_LEVEL))


def uninstall() -> None:
    """Undoes `install`."""
    DEFAULTS.keep_constants = False
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
