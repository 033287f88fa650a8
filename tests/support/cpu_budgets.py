"""How much processor time the tests of each folder may take, and the plugin that holds `make test` to it.

Elapsed time says how busy a machine is; processor time says what the tests do. It is counted around every
test, child processes included, and related to a fixed loop that is timed in the same process, so that a slow
machine has more and a fast one less. A folder fails only beyond `MARGIN` times its budget: one slow test is
found by reading the table, growth that nobody looked at by the failure. Who raises a budget says why.
"""

from __future__ import annotations

import resource
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

#: Processor seconds of the tests of a folder (and of the files beside the folders, under "tests").
BUDGETS = {
    "tests/backend": 50.0,
    # Some small programs are compiled and run, most with sanitizers; `make c-test-library` built the library.
    "tests/c": 7.0,
    # Every command of the page, and each setting of a bench, runs in a process of its own.
    "tests/cli": 85.0,
    "tests/compat": 165.0,
    # Some twenty-five small models are exported, one by ExecuTorch.
    "tests/custom_ops": 50.0,
    # Small models are exported, and recorded by ExecuTorch's runtime too.
    "tests/devtools": 60.0,
    # Fourteen small encoders are exported, most with two methods.
    "tests/embeddings": 75.0,
    # Eleven programs run in processes of their own, with torch; models of images, sentences, speech and text
    # are exported, one network is trained.
    "tests/examples": 90.0,
    "tests/exir": 260.0,
    "tests/format": 5.0,
    "tests/huggingface": 400.0,
    # Ten thousand malformed requests, and a server that Triton's client calls.
    "tests/integrations": 10.0,
    # Six small decoders, seven encoder-decoders of two methods each and two state-space models are exported;
    # one model is trained; hostile templates run into their bounds; ExecuTorch exports five
    # decoders, four with its custom operators. Four models with an image encoder and six
    # decoders for several sequences are exported, too.
    "tests/llm": 330.0,
    "tests/models": 90.0,
    "tests/ops": 300.0,
    # A package is built and passes the conformance test, in processes of its own.
    "tests/plugins": 30.0,
    # Six small models are exported.
    "tests/report": 20.0,
    # Some thirty flows are converted and exported, here and in ExecuTorch; training takes twenty seconds.
    "tests/quant": 110.0,
    # Pools of worker processes are started in every way, and each imports NumPy.
    "tests/run": 165.0,
    # Small backends are lowered and run; damaged blobs are loaded in processes of their own.
    "tests/testing": 25.0,
    # ExecuTorch lowers and runs eighteen cases.
    "tests/xnnpack": 80.0,
    # Every page of docs/ runs its examples in a process of its own; one exports a detector, one quantises.
    "tests": 65.0,
}
MARGIN = 2.0
#: Seconds that `calibration` takes on the machine on which the budgets were written down.
CALIBRATED = 0.1
_KEY = "processor seconds"


def calibration() -> float:
    """Processor seconds of a fixed piece of interpreter's work; the least of several."""

    def once() -> float:
        begun = time.thread_time()
        total = 0
        for i in range(4_000_000):
            total += i & 7
        return time.thread_time() - begun

    return min(once() for _ in range(3))


#: Seconds of processes that are nobody's child here (`tests.support.forks`).
elsewhere = [0.0]


def busy(usage: resource.struct_rusage) -> float:
    """In the processor, in user and in system mode."""
    return usage.ru_utime + usage.ru_stime


def spent() -> float:
    """Processor seconds of this process, of children that have ended, and of what was counted elsewhere."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(map(busy, usages)) + elsewhere[0]


def folder_of(nodeid: str) -> str:
    """The folder that a test counts for."""
    parts = Path(nodeid.partition("::")[0]).parts
    return "/".join(parts[:2]) if len(parts) > 2 else "tests"


class Clock:
    """Notes in every report what its phase took: in each process that runs tests."""

    def __init__(self) -> None:
        self.last = spent()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        self.last = spent()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        report = yield
        now = spent()
        report.user_properties.append((_KEY, now - self.last))
        self.last = now
        return report


class Budgets:
    """Sums by folder, in the process that hears of all tests; fails the run beyond the margin."""

    def __init__(self) -> None:
        self.speed = calibration() / CALIBRATED
        self.sums: dict[str, float] = defaultdict(float)
        self.counts: dict[str, int] = defaultdict(int)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        folder = folder_of(report.nodeid)
        self.sums[folder] += sum(seconds for key, seconds in report.user_properties if key == _KEY)
        self.counts[folder] += report.when == "call"

    def excess(self) -> list[str]:
        """The folders beyond their margin, in words."""
        return [
            f"{folder}: {seconds:.0f} s of processor time, beyond {self.limit(folder):.0f} s"
            for folder, seconds in sorted(self.sums.items())
            if seconds > self.limit(folder)
        ]

    def limit(self, folder: str) -> float:
        """The seconds beyond which a folder fails on this machine; a folder without budget has none."""
        return MARGIN * BUDGETS.get(folder, 0.0) * self.speed

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.excess() and not session.exitstatus:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section(f"processor time (calibration {self.speed:.2f})")
        for folder, seconds in sorted(self.sums.items()):
            budget = BUDGETS.get(folder, 0.0) * self.speed
            line = f"{folder:<16}{self.counts[folder]:>7} tests {seconds:>8.1f} s, budget {budget:>6.0f} s"
            terminalreporter.write_line(line)
        for line in self.excess():
            terminalreporter.write_line(f"over budget: {line} (tests/support/cpu_budgets.py)", red=True)
