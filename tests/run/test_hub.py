"""`pteron.hub`: folders as transformers' exporters save them, written here by hand."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pteron
from pteron import hub
from pteron.errors import InputError, ProgramError
from tests.support.programs import add_method, build

LEAF: dict[str, Any] = {"type": None, "context": None, "children_spec": []}
X = np.ones((2, 3), np.float32)


def spec(kind: str, context: Any, *parts: dict[str, Any]) -> dict[str, Any]:
    """A level of a structure as `treespec_dumps` writes it."""
    return {"type": kind, "context": json.dumps(context), "children_spec": list(parts)}


def inputs(**parts: dict[str, Any]) -> str:
    """The structure of keywords."""
    keywords = spec("builtins.dict", list(parts), *parts.values())
    return json.dumps([1, spec("builtins.tuple", None, spec("builtins.tuple", None), keywords)])


CACHE = spec("transformers.cache_utils:DynamicCache", {"_t": "obj"}, LEAF)
OUTPUTS = json.dumps([1, spec("transformers.modeling_outputs.ModelOutput", ["scores", "cache"], LEAF, CACHE)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One component that adds a tensor and the one in a cache; its second output is a constant."""
    (tmp_path / "model.pte").write_bytes(build(add_method()))
    metadata = {
        "in_spec": inputs(x=LEAF, past=CACHE, empty=spec("builtins.tuple", None)),
        "out_spec": OUTPUTS,
        "out_constants": [[1, 7]],
    }
    manifest = {
        "schema_version": 1,
        "export_format": "pteron",
        "components": {"model": {"file": "model.pte", "metadata": metadata}},
    }
    (tmp_path / "export.json").write_text(json.dumps(manifest))
    (tmp_path / "config.json").write_text('{"model_type": "adder"}')
    return tmp_path


def changed(folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """The folder with another manifest."""
    manifest = json.loads((folder / "export.json").read_text())
    change(manifest)
    (folder / "export.json").write_text(json.dumps(manifest))
    return folder


def test_a_folder_is_called_by_keywords(folder: Path) -> None:
    model = hub.load(folder)
    component = model["model"]
    assert component.input_names == ("x", "past")
    assert model.config == {"model_type": "adder"}
    assert model.generation_config == {}
    result = model(x=X, past=(X,), unknown="left out")
    assert (result["scores"] == 2).all()
    assert result["cache"] == (7,)
    assert (component(past=(X,), x=X)["scores"] == 2).all()


def test_constants_of_the_program_need_not_be_given(folder: Path) -> None:
    def change(manifest: dict[str, Any]) -> None:
        metadata = manifest["components"]["model"]["metadata"]
        metadata["in_constants"] = {"flag": None}
        metadata["in_spec"] = inputs(x=LEAF, past=CACHE)

    assert hub.load(changed(folder, change))["model"].input_names == ("x", "past")


def test_it_runs_where_torch_and_transformers_cannot_be_imported(folder: Path) -> None:
    code = textwrap.dedent(
        """
        import sys
        for name in ("torch", "transformers", "executorch", "huggingface_hub"):
            sys.modules[name] = None
        import numpy as np
        from pteron import hub
        x = np.ones((2, 3), np.float32)
        assert (hub.load(sys.argv[1])(x=x, past=(x,))["scores"] == 2).all()
        """
    )
    subprocess.run([sys.executable, "-c", code, folder], check=True, timeout=60)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            {"x": X},
            "input 'past' has another number of values.*expected 1 values; got nothing.*takes 'x', 'past'",
        ),
        ({"x": X, "past": ()}, "expected 1 values; got 0 values"),
    ],
)
def test_missing_inputs_are_named(folder: Path, given: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        hub.load(folder)(**given)


def _component(manifest: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = manifest["components"]["model"]
    return found


DEEP = '[1, {"type": "builtins.tuple", "context": "null", "children_spec": [' * 60


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda m: m.update(schema_version=2), "schema_version 2, and 1 is the newest"),
        (lambda m: m.update(export_format="onnx"), "export_format 'onnx', expected one of"),
        (lambda m: m.update(components=[]), "no components"),
        (lambda m: _component(m).update(file="../model.pte"), "names no file of the folder"),
        (lambda m: _component(m).update(file=3), "names no file of the folder"),
        (lambda m: _component(m).update(metadata=None), "names no file of the folder"),
        (lambda m: _component(m)["metadata"].update(in_spec=DEEP), "structure that cannot be read"),
        (lambda m: _component(m)["metadata"].update(in_spec="[1, {}]"), "structure that cannot be read"),
        (lambda m: _component(m)["metadata"].pop("out_spec"), "structure that cannot be read"),
        (lambda m: _component(m)["metadata"].update(in_spec=json.dumps([1, LEAF])), "states no keywords"),
        (lambda m: _component(m)["metadata"].update(in_constants=[1]), "in_constants that are no object"),
        (lambda m: _component(m)["metadata"].update(out_constants=3), "out_constants that its outputs"),
        (
            lambda m: _component(m)["metadata"].update(out_constants=[[2, 7]]),
            "out_constants that its outputs",
        ),
        (lambda m: _component(m)["metadata"].update(out_constants=[[1]]), "out_constants that its outputs"),
        (lambda m: _component(m)["metadata"].update(out_constants=[]), "more outputs than its program has"),
    ],
)
def test_damaged_manifests_are_refused(folder: Path, change: Callable[[Any], object], text: str) -> None:
    with pytest.raises(ProgramError, match=text):
        hub.load(changed(folder, change))


def test_files_that_are_missing_or_no_json(folder: Path) -> None:
    (folder / "config.json").write_text("[]")
    with pytest.raises(ProgramError, match=r"config\.json holds no object"):
        hub.load(folder)
    (folder / "export.json").write_text("{")
    with pytest.raises(ProgramError, match=r"export\.json is no JSON"):
        hub.load(folder)
    with pytest.raises(FileNotFoundError):
        hub.load(folder / "nowhere")


def test_several_components_are_called_by_name(folder: Path) -> None:
    def twice(manifest: dict[str, Any]) -> None:
        manifest["components"]["other"] = _component(manifest)

    model = hub.load(changed(folder, twice))
    with pytest.raises(ValueError, match=r"several components \(model, other\)"):
        model(x=X, past=(X,))
    assert isinstance(model["other"].method, pteron.Method)
