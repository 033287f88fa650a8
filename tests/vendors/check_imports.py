"""What vendors' code imports from ExecuTorch is there through `pteron.compat`, and modules of vendors that
stop at an SDK stop there in both: `make test-vendors`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.vendors.own_process import run_module, run_together

_OWN_FILE = "takes a file of MLX apart with ExecuTorch's reader"
#: Names that code of vendors imports and that are not here, and why.
NOT_HERE = {
    "executorch.exir._serialize._flatbuffer: _program_flatbuffer_to_json": _OWN_FILE,
    "executorch.exir._serialize._program: _extract_delegate_payload": _OWN_FILE,
    "executorch.exir.backend.compile_spec: CompileSpec": "ExecuTorch has no such module either",
}
#: Folders whose modules are imported on both sides: all of `executorch.backends` but its own tests.
PACKAGES = (
    *("aoti", "apple", "arm", "cadence", "cortex_m", "cuda", "example", "mediatek", "mlx", "native", "nxp"),
    *("openvino", "qualcomm", "samsung", "transforms", "vulkan", "webgpu", "xnnpack"),
)


def is_same_stop(ours: dict[str, Any], theirs: dict[str, Any] | None) -> bool:
    """Whether both sides miss the same package, or fail in the same way."""
    return theirs is not None and (ours["type"], ours["name"]) == (theirs["type"], theirs["name"])


def is_stated(ours: dict[str, Any]) -> bool:
    """Whether a name is missing that `NOT_HERE` lists: a module may reach it through others."""
    return ours["text"].startswith(tuple(f"{name.replace(': ', '.')} is not here" for name in NOT_HERE))


@pytest.mark.peer
def test_names_that_vendors_import_are_here(tmp_path: Path) -> None:
    out = tmp_path / "missing.json"
    run_module("missing_names", out)
    assert json.loads(out.read_text()) == sorted(NOT_HERE)


@pytest.fixture(scope="session")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What `import_all` says of each side. One process imports all packages: torch is imported once."""
    folder = tmp_path_factory.mktemp("imported")
    sides = ("theirs", "ours")
    packages = [f"executorch.backends.{package}" for package in PACKAGES]
    run_together([("import_all", side, folder / side, *packages) for side in sides])
    return {side: json.loads(folder.joinpath(side).read_text()) for side in sides}


@pytest.mark.peer
@pytest.mark.parametrize("package", PACKAGES)
def test_modules_import_or_stop_at_the_vendor_s_sdk(package: str, outcomes: Any) -> None:
    theirs, ours = (outcomes[side][f"executorch.backends.{package}"] for side in ("theirs", "ours"))
    assert theirs
    assert ours.keys() == theirs.keys()
    assert not {
        module: stop["text"]
        for module, stop in ours.items()
        if stop is not None and not is_same_stop(stop, theirs[module]) and not is_stated(stop)
    }
