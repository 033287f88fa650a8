"""Runs one of ExecuTorch's test modules: `python -m tests.executorch_suites.run_file ours|theirs MODULE OUT`.

`ours` puts `pteron.compat` in the place of the packages that it replaces, with `keep_constants=True` for the
suites of `KEEP_CONSTANTS`; `theirs` runs the module as it is.
OUT is a JSON object: the outcome of every test by name, or why the module cannot be imported.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
import time
import traceback
import unittest
import warnings
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.executorch_suites.suites import keeps_constants

_Failure = tuple[type[BaseException], BaseException, TracebackType] | tuple[None, None, None]


class Outcomes(unittest.TestResult):
    """A dict from the name of each test to "pass", "skip: why" or "fail: why"."""

    def __init__(self) -> None:
        super().__init__()
        self.by_name: dict[str, str] = {}
        self.traces: dict[str, str] = {}

    def addSuccess(self, test: unittest.TestCase) -> None:
        self.by_name.setdefault(name_of(test), "pass")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self.by_name[name_of(test)] = f"skip: {reason}"

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        self._fail(name_of(test), err)

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        self._fail(name_of(test), err)

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        if err is not None:
            self._fail(name_of(test), err)

    def addExpectedFailure(self, test: unittest.TestCase, err: Any) -> None:
        self.by_name[name_of(test)] = "pass"

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        self.by_name[name_of(test)] = "fail: expected to fail"

    def _fail(self, name: str, err: _Failure) -> None:
        kind, error, _ = err
        first = str(error).strip().splitlines()[0:1]
        self.by_name[name] = f"fail: {kind.__name__ if kind else ''}: {''.join(first)}"
        self.traces[name] = "".join(traceback.format_exception(*err))


def name_of(test: unittest.TestCase) -> str:
    """`Class.test`, the same in both runs."""
    if hasattr(test, "_testMethodName"):
        return f"{type(test).__name__}.{test._testMethodName}"
    return str(test)


def tests_of(module: Any) -> unittest.TestSuite:
    """The tests of a module; those that the older pytest would leave out say so."""
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    for test in _flat(suite):
        method = getattr(type(test), test._testMethodName, None)
        for mark in getattr(method, "pytestmark", []):
            if mark.name == "skip":
                reason = mark.kwargs.get("reason", "marked to be skipped")
                setattr(type(test), test._testMethodName, unittest.skip(reason)(method))
    return suite


def _flat(suite: unittest.TestSuite) -> list[Any]:
    found: list[Any] = []
    for part in suite:
        found.extend(_flat(part) if isinstance(part, unittest.TestSuite) else [part])
    return found


def run(side: str, name: str) -> dict[str, Any]:
    """The outcomes of the tests of the module `name`."""
    if side == "ours":
        from pteron import compat

        compat.install(replace=True, keep_constants=keeps_constants(name.partition(".")[2]))
    try:
        module = importlib.import_module(name)
    except Exception as error:
        said = str(error).strip().splitlines()[0:1]
        return {"import": f"{type(error).__name__}: {''.join(said)}", "trace": traceback.format_exc()}
    outcomes = Outcomes()
    tests_of(module).run(outcomes)
    return {"tests": outcomes.by_name, "traces": outcomes.traces}


def main(arguments: list[str]) -> int:
    """0 where the module ran, whatever its tests say."""
    side, name, out = arguments
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    if os.environ.get("OMP_NUM_THREADS"):
        import torch

        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    start = time.process_time()
    found = run(side, name)
    found["seconds"] = round(time.process_time() - start, 1)
    Path(out).write_text(json.dumps(found))
    sys.stdout.flush()
    os._exit(0)  # what a test left running is not waited for


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
