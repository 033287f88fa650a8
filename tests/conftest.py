"""What holds for every test: one thread of PyTorch, and the processor time that `--cpu-budgets` counts."""

from __future__ import annotations

import gc
import os
import signal

# Tests run side by side and their models are small: threads of PyTorch would cost more than they give. Set
# before torch is imported, and inherited by the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# The pool of pteron would keep to that number, too; what its threads do is tested with as many as there are.
os.environ.setdefault("PTERON_NUM_THREADS", str(os.cpu_count() or 1))

# A shell starts what it puts into the background deaf to Ctrl-C, and children of it are, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import pytest

from tests.support.cpu_budgets import Budgets, Clock


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cpu-budgets", action="store_true", help="hold every folder to tests/support/cpu_budgets.py"
    )


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("cpu_budgets"):
        return
    config.pluginmanager.register(Clock(), "cpu-clock")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Budgets(), "cpu-budgets")


def pytest_collection_finish() -> None:
    # Torch, transformers and twenty thousand tests are a million objects that live to the end. Frozen, the
    # collections of the tests, those that tests ask for among them, do not walk through them again.
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _few_objects_to_collect() -> None:
    """What tests of other modules left alive is not walked through again: a tenth of the processor time of
    tests that export, a second for each collection that a test asks for.
    """
    gc.collect()
    gc.freeze()
