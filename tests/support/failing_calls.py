"""For every exception class of the run half a call that ends in it.

Examples of `docs/reference/errors.md`, and what the tests of error texts look at.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import pteron
from pteron import errors
from pteron._native import ExecuteContext
from tests.support.programs import add_method, build, delegate_method, endless_method
from tests.support.waiting import until

X = np.zeros((2, 3), np.float32)


class _Failing:
    """A backend for examples."""

    num_outputs = 1

    def __init__(self, work: Callable[[ExecuteContext], object]) -> None:
        self.work = work

    def init(self, *_: object) -> _Failing:
        return self

    def execute(self, ctx: ExecuteContext, *_: object) -> None:
        self.work(ctx)


def _delegated(work: Callable[[ExecuteContext], object]) -> pteron.Method:
    runtime = pteron.Runtime()
    pteron.register_backend("Mine", _Failing(work), runtime=runtime)
    return pteron.load(build(delegate_method("Mine")), runtime=runtime).load_method()


def _missing_operator() -> None:
    method = add_method()
    x, y, out = method.inputs[0], method.inputs[1], method.outputs[0]
    method.call("aten::frobnicate.out", [x, y, out, out])
    pteron.load(build(method)).load_method()


def _kernel() -> None:
    method = add_method(shape=(2, 3))
    out = method.tensor([4, 4])
    one = method.int(1)
    method.call("aten::add.out", [method.inputs[0], method.inputs[1], one, out, out])
    pteron.load(build(method)).load_method()


def _busy() -> None:
    methods: list[pteron.Method] = []
    methods.append(_delegated(lambda ctx: methods[0](X, X)))
    try:
        methods[0](X, X)
    except errors.DelegateError as error:
        if error.__cause__ is not None:
            raise error.__cause__ from None
        raise


def _cancelled() -> None:
    methods: list[pteron.Method] = []
    methods.append(_delegated(lambda ctx: methods[0].cancel()))
    methods[0](X, X)


def _lent() -> None:
    method = pteron.load(build(add_method())).load_method()
    kept = np.asarray(method.execute([X, X], copy=False)[0])
    method(X, X)
    del kept


def _late() -> None:
    # A delegate outlasts the deadline, so that the place in the text is always the same.
    _delegated(lambda ctx: until(ctx.is_cancelled, "the deadline")).execute([X, X], deadline=0.2)


def _raise(ctx: ExecuteContext) -> None:
    raise ValueError("no such table")


def _load() -> pteron.Method:
    return pteron.load(build(add_method())).load_method()


EXAMPLES: dict[type[errors.PteronError], Callable[[], object]] = {
    errors.ProgramError: lambda: pteron.load(b"this is not a program"),
    errors.MissingOperatorError: _missing_operator,
    errors.MissingBackendError: lambda: pteron.load(
        build(delegate_method("Nowhere")), runtime=pteron.Runtime()
    ).load_method(),
    errors.MethodNotFoundError: lambda: pteron.load(build(add_method())).load_method("backward"),
    errors.InputError: lambda: _load()(X, np.zeros((2, 4), np.float32)),
    errors.InputTypeError: lambda: _load()(X, np.zeros((2, 3), np.float64)),
    errors.KernelError: _kernel,
    errors.DelegateError: lambda: _delegated(_raise)(X, X),
    errors.ExternalDataError: lambda: pteron.load(build(add_method()), data=b"this is not a data file"),
    errors.LimitExceeded: lambda: (
        pteron.load(build(endless_method())).load_method().execute([X, X], budget=1000)
    ),
    errors.Cancelled: _cancelled,
    errors.DeadlineExceeded: _late,
    errors.MethodBusy: _busy,
    errors.OutputsInUseError: _lent,
}
