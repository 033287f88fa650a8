"""Where the custom operators of a program come from, as the file says it to who has no kernel for one."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterable
from importlib import metadata
from typing import Any

import torch
from torch._library import custom_ops, simple_registry

from pteron.exir.edge.custom_ops import is_custom_name

_REGISTERED = re.compile(r"^debug: registered at (.+):\d+$", re.MULTILINE)


def custom_operators(names: Iterable[str]) -> list[str]:
    """Those of `names` (`namespace::operator.overload`) that are custom operators, sorted, once each."""
    return sorted({name for name in names if is_custom_name(name)})


def operator_origins(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Custom operator → the Python module that defines it, and the package and version that has the module,
    as far as they are known.
    """
    found = {name: _origin(name.partition(".")[0]) for name in custom_operators(names)}
    return {name: origin for name, origin in found.items() if origin}


@functools.cache
def _origin(name: str) -> dict[str, str]:
    module = _module(name)
    if module is None:
        return {}
    origin = {"module": module}
    packages = _packages().get(module.partition(".")[0], [])
    if packages:
        origin["package"] = packages[0]
        origin["version"] = metadata.version(packages[0])
    return origin


@functools.cache
def _packages() -> dict[str, list[str]]:
    return {name: sorted(set(found)) for name, found in metadata.packages_distributions().items()}


def _module(name: str) -> str | None:
    """The module that defines `namespace::operator`: of the decorated function, else the file that registered
    it, else that of its fake implementation.
    """
    definition: Any = custom_ops.OPDEFS.get(name)
    if definition is not None:
        return _importable(definition._init_fn.__module__)
    registered = _REGISTERED.search(torch._C._dispatch_dump(name))
    if registered is not None:
        module = _module_of_file(registered.group(1))
        if module is not None:
            return module
    fake = simple_registry.singleton.find(name).fake_impl.kernel
    return None if fake is None else _module_of_file(fake.source.rpartition(":")[0])


def _module_of_file(file: str) -> str | None:
    for name, module in list(sys.modules.items()):
        if getattr(module, "__file__", None) == file and name.partition(".")[0] != "torch":
            return _importable(name)
    return None


def _importable(module: str) -> str | None:
    return None if module == "__main__" else module
