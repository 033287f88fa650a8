"""Checks of a backend: flows, element types, varying extents, state, sessions, threads, stopping, damage."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import torch
from torch import Tensor

import pteron
from pteron.exir import EdgeProgramManager, to_edge, to_edge_transform_and_lower
from pteron.exir.backend.lowered_backend_module import get_lowered_backend_modules
from pteron.testing.backend_report import BackendReport, Check
from pteron.testing.damage import damage_findings
from pteron.testing.models import ModelCase, model_cases

_THREADS = 4
_SESSIONS = 2


def check_backend(
    partitioner: Callable[[], Any],
    *,
    models: Sequence[ModelCase] | None = None,
    runtime: pteron.Runtime | None = None,
    damaged: int = 64,
    isolate: str | None = None,
    raise_on_failure: bool = True,
) -> BackendReport:
    """Lowers each model with the backend, runs it beside eager PyTorch, checks what backends have to keep.

    A model of which the partitioner takes nothing is "not taken", not a failure.

    Args:
        partitioner: makes a partitioner; a class will do. Its run half is registered with `runtime` already.
        models: what to lower; None: `model_cases()`.
        runtime: where the run half is registered; None: the default one.
        damaged: how many damaged copies of a blob to load, of each of the first three models that are taken.
        isolate: `"module:function"`, which registers the run half; damaged files are then loaded in a process
            of their own, so that a crash is a finding. Native backends want this. None: in this process.
        raise_on_failure: raise what the report's `raise_for_failures` raises.

    Returns: the report.

    Raises: AssertionError with the text of every failed check.
    """
    checks: list[Check] = []
    taken: list[tuple[ModelCase, Any]] = []
    for model in model_cases() if models is None else models:
        try:
            lowered = _Lowered(model, partitioner, runtime)
        except Exception as error:  # a partitioner may raise anything, and the other models go on
            checks.append(Check("lowering", model.name, "failed", f"{type(error).__name__}: {error}"))
            continue
        if not lowered.is_taken:
            checks.append(Check("lowering", model.name, "not taken", "the partitioner took no node of it"))
            continue
        taken.append((model, lowered))
        checks += lowered.checks()
    for model, lowered in taken[:3]:
        found = list(damage_findings(lowered.manager, model.args, damaged, runtime, isolate))
        checks += [Check("damaged blobs", model.name, "failed", text) for text in found]
        if not found:
            checks.append(Check("damaged blobs", model.name, "passed"))
    report = BackendReport(tuple(checks))
    if raise_on_failure:
        report.raise_for_failures()
    return report


class _Lowered:
    """One model, lowered, and the checks of it."""

    def __init__(
        self, model: ModelCase, partitioner: Callable[[], Any], runtime: pteron.Runtime | None
    ) -> None:
        self._model, self._partitioner, self._runtime = model, partitioner, runtime
        self.manager = to_edge_transform_and_lower(self._exported(), partitioner=[partitioner()])
        self.is_taken = bool(get_lowered_backend_modules(self.manager.exported_program().graph_module))

    def checks(self) -> Iterator[Check]:
        """Every check of the model."""
        checks: dict[str, Callable[[], str | None]] = {
            "to_edge_transform_and_lower": lambda: self._agrees(self.manager),
            "to_edge, to_backend": lambda: self._agrees(
                to_edge(self._exported()).to_backend(self._partitioner())
            ),
            "named in the file": self._is_named,
            "two sessions": self._two_sessions,
            "threads": self._threads,
            "stopping": self._stopping,
            "state": self._state,
        }
        for name, check in checks.items():
            try:
                what = check()
            except Exception as error:  # a backend may raise anything, and the other checks go on
                what = f"{type(error).__name__}: {error}"
            yield Check(name, self._model.name, "failed" if what else "passed", what or "")

    def _exported(self) -> torch.export.ExportedProgram:
        model = self._model
        return torch.export.export(model.make(), model.args, dynamic_shapes=model.dynamic_shapes)

    def _program(self, manager: EdgeProgramManager | None = None) -> pteron.Program:
        buffer = (manager or self.manager).to_executorch().buffer
        return pteron.load(buffer, runtime=self._runtime)

    @cached_property
    def _expected(self) -> list[list[Tensor]]:
        """Results of eager PyTorch, call by call; a buffer goes on from call to call.

        Computed once, by one thread: models are made with a seed, and threads share PyTorch's generator.
        """
        eager = self._model.make()
        with torch.no_grad():
            return [_flat(eager(*(arg.clone() for arg in args))) for args in self._model.all_calls]

    def _run(self, method: pteron.Method) -> list[list[Tensor]]:
        return [_flat(method(*args)) for args in self._model.all_calls]

    def _differences(self, results: list[list[Tensor]]) -> str | None:
        for call, (got, expected) in enumerate(zip(results, self._expected, strict=True)):
            if len(got) != len(expected):
                return f"call {call}: {len(got)} results, {len(expected)} in eager PyTorch"
            for place, (value, wanted) in enumerate(zip(got, expected, strict=True)):
                what = self._difference(value, wanted)
                if what:
                    return f"call {call}, result {place}: {what}"
        return None

    def _difference(self, value: Tensor, wanted: Tensor) -> str | None:
        if value.dtype != wanted.dtype or value.shape != wanted.shape:
            return f"{value.dtype}{list(value.shape)}, {wanted.dtype}{list(wanted.shape)} in eager PyTorch"
        rtol, atol = self._model.rtol, self._model.atol
        if torch.allclose(value.double(), wanted.double(), rtol=rtol, atol=atol, equal_nan=True):
            return None
        worst = (value.double() - wanted.double()).abs().nan_to_num(float("inf")).max()
        return f"differs from eager PyTorch by up to {float(worst):.3g}"

    def _agrees(self, manager: EdgeProgramManager) -> str | None:
        return self._differences(self._run(self._program(manager).load_method()))

    def _is_named(self) -> str | None:
        ids = {
            m.backend_id for m in get_lowered_backend_modules(self.manager.exported_program().graph_module)
        }
        named = set(self._program().backends("forward"))
        return None if ids <= named else f"the file names {sorted(named)}, the lowered modules {sorted(ids)}"

    def _two_sessions(self) -> str | None:
        program = self._program()
        first, second = program.load_method(), program.load_method()
        results: tuple[list[list[Tensor]], list[list[Tensor]]] = ([], [])
        for args in self._model.all_calls:
            for method, into in zip((first, second), results, strict=True):
                into.append(_flat(method(*args)))
        return self._differences(results[0]) or self._differences(results[1])

    def _threads(self) -> str | None:
        program, found = self._program(), list[str]()
        assert self._expected  # before the threads begin

        def work() -> None:
            try:
                for _ in range(_SESSIONS):
                    what = self._differences(self._run(program.load_method()))
                    if what:
                        found.append(what)
            except Exception as error:  # it would end the thread, and be seen by nobody
                found.append(f"{type(error).__name__}: {error}")

        threads = [threading.Thread(target=work) for _ in range(_THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return f"{len(found)} of {_THREADS * _SESSIONS} sessions: {found[0]}" if found else None

    def _stopping(self) -> str | None:
        """A call that ran out of time, or was finished in spite of it, leaves a session fit for the next."""
        method = self._program().load_method()
        if method.get_state():
            return None  # how far a stopped call came is seen in the state
        for deadline in (0.0, 1e-6, 1e-4):
            try:
                method.execute(list(self._model.args), deadline=deadline)
            except pteron.DeadlineExceeded:
                continue
        return self._differences(self._run(method))

    def _state(self) -> str | None:
        """State that was read can be set again; a reset session begins anew."""
        method = self._program().load_method()
        before = self._run(method)
        if not method.get_state():
            return None
        kept = method.get_state()
        after = self._run(method)
        method.set_state(kept)
        if not _equal(self._run(method), after):
            return "after get_state, calls and set_state, the same calls give other results"
        method.reset_state()
        if not _equal(self._run(method), before):
            return "after reset_state, the calls of a new session give other results"
        return None


def _flat(result: Any) -> list[Tensor]:
    leaves = torch.utils._pytree.tree_leaves(result)
    return [leaf if isinstance(leaf, Tensor) else torch.as_tensor(leaf) for leaf in leaves]


def _equal(one: list[list[Tensor]], other: list[list[Tensor]]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(chain(*one), chain(*other), strict=True))
