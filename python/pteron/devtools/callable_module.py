"""Modules that are called like their function of the same name.

`pteron.devtools.profile(program, inputs)` and `from pteron.devtools.profile import profile` are both public:
Python sets a submodule as the attribute of its package, whatever the package put there.
"""

from __future__ import annotations

import inspect
import sys
from types import ModuleType
from typing import Any


class CallableModule(ModuleType):
    """A module with a function of its own last name."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return getattr(self, self.__name__.rpartition(".")[2])(*args, **kwargs)


def make_callable(name: str) -> None:
    """Lets the module `name`, which is being imported, be called; `help` and editors see its function."""
    module = sys.modules[name]
    module.__class__ = CallableModule
    function = getattr(module, name.rpartition(".")[2])
    module.__dict__["__signature__"] = inspect.signature(function)
