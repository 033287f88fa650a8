"""Importing and running pteron imports no torch, and importing it is quick."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import pteron

ROOT = Path(__file__).resolve().parents[2]
ENV = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(Path(pteron.__file__).parents[1]), str(ROOT)]),
}

REFUSE = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "executorch", "torchao", "transformers"):
            raise AssertionError("something imported " + name)
sys.meta_path.insert(0, Refuse())
"""


def _run(code: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *options, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        env=ENV,
        timeout=120,
        check=True,
    )


def test_the_run_half_runs_where_importing_torch_raises() -> None:
    code = (
        REFUSE
        + """
import numpy as np
import pteron, pteron.runtime, pteron.errors
from tests.support.programs import add_method, build, delegate_method
class Delegate:
    num_outputs = 1
    def execute(self, ctx, inputs, outputs):
        np.add(np.asarray(inputs[0]), np.asarray(inputs[1]), out=outputs[0].numpy())
class Backend:
    def init(self, ctx, processed, specs):
        return Delegate()
pteron.register_backend("B", Backend())
x = np.ones((2, 3), np.float32)
assert (pteron.load(build(add_method())).run("forward", x, x) == 2).all()
assert (pteron.load(build(delegate_method("B"))).run("forward", x, x) == 2).all()
try:
    pteron.load(build(add_method())).run("forward", x, None)
except pteron.InputTypeError:
    pass
assert "torch" not in sys.modules
print("ran")
"""
    )
    assert _run(code).stdout == "ran\n"


def test_without_torch_the_compile_half_says_what_to_install() -> None:
    code = """
    import sys
    sys.modules["torch"] = None
    try:
        import pteron.exir
    except ImportError as error:
        print(error)
    """
    assert 'pip install "pteron[export]"' in _run(code).stdout


@pytest.mark.parametrize("version", ["2.12.1+cpu", "1.13.0"])
def test_with_a_torch_that_is_too_old_the_compile_half_says_so(version: str) -> None:
    code = f"""
    import sys, types
    sys.modules["torch"] = types.ModuleType("torch")
    sys.modules["torch"].__version__ = {version!r}
    try:
        import pteron.exir
    except ImportError as error:
        print(error)
    """
    says = f"pteron.exir needs PyTorch 2.13 or newer, and {version} is installed: "
    assert _run(code).stdout == says + 'pip install "pteron[export]"\n'


@pytest.mark.alone
def test_import_adds_little_to_numpy() -> None:
    def milliseconds() -> float:
        report = _run("import numpy\nimport pteron", "-X", "importtime").stderr
        (line,) = [line for line in report.splitlines() if line.rpartition("|")[2].strip() == "pteron"]
        return int(line.split("|")[1]) / 1000

    assert statistics.median(milliseconds() for _ in range(5)) < 60  # the aim is 20; machines differ


def test_the_public_names() -> None:
    assert pteron.__version__ == pteron._native.__version__
    assert pteron.__all__ == [
        *("Call", "CancelToken", "Cancelled", "DeadlineExceeded", "DelegateError", "DimRange", "ExportError"),
        *("ExternalDataError", "InputError", "InputTypeError", "InternalError", "KernelError"),
        *("LimitExceeded", "Limits", "Method", "MethodBusy", "MethodNotFoundError"),
        *("MissingBackendError", "MissingOperatorError", "OutputsInUseError", "Predictor", "Program"),
        *("ProgramError", "PteronError", "Runtime", "Tensor", "ValueSpec"),
        *(
            "__version__",
            "export",
            "get_include",
            "load",
            "metrics",
            "plugins",
            "register_backend",
            "register_kernel",
            "strip",
        ),
    ]
    for name in pteron.__all__:
        assert hasattr(pteron, name)
