"""Folders of `pteron.hub` that cannot be loaded, and components without their inputs."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pteron import hub
from tests.support.programs import add_method, build

_LEAF = {"type": None, "context": None, "children_spec": []}
_EMPTY = {"type": "builtins.tuple", "context": "null", "children_spec": []}
_KEYWORDS = {"type": "builtins.dict", "context": '["x", "y"]', "children_spec": [_LEAF, _LEAF]}
_INPUTS = json.dumps([1, {**_EMPTY, "children_spec": [_EMPTY, _KEYWORDS]}])
_METADATA = {"in_spec": _INPUTS, "out_spec": json.dumps([1, _LEAF])}
_MANIFEST = {
    "export_format": "pteron",
    "components": {"model": {"file": "model.pte", "metadata": _METADATA}},
}


def _loaded(manifest: Any, use: Callable[[hub.HubModel], object] = lambda _: None) -> Callable[[], object]:
    def call() -> None:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "model.pte").write_bytes(build(add_method()))
            text = manifest if isinstance(manifest, str) else json.dumps(manifest)
            Path(folder, "export.json").write_text(text)
            use(hub.load(folder))

    return call


CALLS: dict[str, Callable[[], object]] = {
    "a hub folder without a JSON manifest": _loaded("{"),
    "a hub folder whose manifest is a list": _loaded("[]"),
    "a hub folder of another format": _loaded({**_MANIFEST, "export_format": "onnx"}),
    "a hub component without its inputs": _loaded(_MANIFEST, lambda model: model()),
}
