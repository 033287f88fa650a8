"""What the native classes have that is written in Python: how they are pickled and copied, `Program.submit`
and `Program.run_async`.

Importing this module gives it to them; `pteron` does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from pteron import _native
from pteron.errors import InputTypeError

if TYPE_CHECKING:
    from pteron.pooled_call import Call
    from pteron.recipe import Recipe

__all__ = ["limits_of", "loaded_again"]


def loaded_again(recipe: Recipe) -> _native.Program:
    """The program of a pickle: one for all pickles of the same file in a process."""
    from pteron.program_cache import program_of

    return program_of(recipe)


def limits_of(fields: dict[str, Any]) -> _native.Limits:
    """The limits of a pickle."""
    return _native.Limits(**fields)


def _reduce_program(self: _native.Program) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A file by its path, size and hash, bytes as they are; with data files, `mmap` and limits."""
    from pteron.recipe import recipe_of

    return loaded_again, (recipe_of(self),)


def _reduce_limits(self: _native.Limits) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    from pteron.recipe import limit_fields

    return limits_of, (limit_fields(self),)


def _refuse_method(self: _native.Method) -> NoReturn:
    raise InputTypeError(
        "a Method cannot be pickled or copied: it has memory, state and delegates of this process",
        method=self.name,
        hint="pickle its program and load the method where it arrives, or use pteron.Predictor",
    )


def _copied(self: Any) -> Any:
    """It never changes, so that it is its own copy."""
    return self


def _deep_copied(self: Any, memo: object, /) -> Any:
    return self


def _submit(self: _native.Program, method: str, /, *args: Any, **kwargs: Any) -> Call:
    """As `run`, in a thread of the process: gives a `pteron.Call` with `result()` and `cancel()`.

    The inputs must not be written to until the call has ended. As many calls run at once as the process has
    processors; `PTERON_NUM_THREADS`, else `OMP_NUM_THREADS`, is the most threads of each. A call without a
    thread of its own is stopped by a `pteron.CancelToken`: `program.execute(method, inputs, cancel=token)`.
    """
    from pteron.pooled_call import Call

    return Call(self, method, args, kwargs)


async def _run_async(self: _native.Program, method: str, /, *args: Any, **kwargs: Any) -> Any:
    """As `run`, for a coroutine, whose event loop goes on meanwhile.

    Cancelling the task stops the run after one chunk of a kernel's work at most; the inputs are not in use
    any more when CancelledError arrives.
    """
    from pteron.pooled_call import Call

    return await Call(self, method, args, kwargs).wait()


_IMMUTABLE = (_native.Program, _native.Limits, _native.ValueSpec, _native.DimRange)
_METHODS: tuple[tuple[type, str, Callable[..., Any]], ...] = (
    (_native.Program, "__reduce__", _reduce_program),
    (_native.Program, "submit", _submit),
    (_native.Program, "run_async", _run_async),
    (_native.Limits, "__reduce__", _reduce_limits),
    (_native.Method, "__reduce__", _refuse_method),
    *((immutable, "__copy__", _copied) for immutable in _IMMUTABLE),
    *((immutable, "__deepcopy__", _deep_copied) for immutable in _IMMUTABLE),
)

for _class, _name, _function in _METHODS:
    setattr(_class, _name, _function)
