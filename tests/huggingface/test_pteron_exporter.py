"""`PteronExporter` and `PteronRunner` on ten architectures, and their folders, run by `pteron.hub`."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn

from pteron.integrations.transformers import PteronConfig, PteronExporter
from tests.huggingface.architectures import ARCHITECTURES, Architecture

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.usefixtures("_one_thread"),
]
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@dataclass
class Exported:
    """An export, saved, and for each component what eager PyTorch gives: (module, keywords)."""

    row: Architecture
    folder: Path
    components: dict[str, tuple[nn.Module, dict[str, Any]]]


@pytest.fixture(scope="module", params=ARCHITECTURES, ids=lambda row: row.name)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    from transformers.exporters.utils import decompose_for_generation

    row: Architecture = request.param
    torch.manual_seed(0)
    model, example = row.build().eval(), row.example()
    folder = tmp_path_factory.mktemp("exported")
    exporter, config = PteronExporter(), PteronConfig(dynamic=True)
    if row.generates:
        components = decompose_for_generation(model, dict(example))
        made = exporter.export_for_generation(model, dict(example), config)
        assert list(made.components) == list(components)
        assert {"decode"} < components.keys()
    else:
        components = {"model": (model, dict(example))}
        made = exporter.export(model, dict(example), config)
    made.save_pretrained(folder)
    return Exported(row, folder, components)


def _tensors(result: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor)]


def _assert_same(ours: list[Tensor], expected: list[Tensor]) -> None:
    assert [tensor.shape for tensor in ours] == [tensor.shape for tensor in expected]
    assert max(float(tensor.abs().max()) for tensor in expected) > 1e-3, "a model of zeros compares nothing"
    for mine, theirs in zip(ours, expected, strict=True):
        largest = float(theirs.abs().max()) or 1.0
        assert float((mine - theirs).abs().max()) / largest <= TOLERANCE


def _eager(module: nn.Module, keywords: dict[str, Any]) -> Any:
    with torch.no_grad():
        return module(**copy.deepcopy(keywords))


def test_the_saved_export_gives_what_the_model_gives(exported: Exported) -> None:
    from transformers.exporters import ExportedModel

    model = ExportedModel.from_pretrained(exported.folder, num_threads=1)
    assert model.config.model_type
    for name, (module, keywords) in exported.components.items():
        expected = _eager(module, keywords)
        for lent in (False, True):
            ours = model.runners[name](share_outputs=lent, **copy.deepcopy(keywords))
            assert type(ours) is type(expected)
            _assert_same(_tensors(ours), _tensors(expected))
            del ours
    if exported.row.other is not None:
        other = exported.row.other()
        (module, _) = exported.components["model"]
        _assert_same(_tensors(model(**other)), _tensors(_eager(module, other)))


def test_saving_what_was_loaded_gives_the_same_files(exported: Exported, tmp_path: Path) -> None:
    from transformers.exporters import ExportedModel

    ExportedModel.from_pretrained(exported.folder).save_pretrained(tmp_path)
    names = {path.name for path in exported.folder.iterdir()}
    assert {"export.json", "config.json", *(f"{name}.pte" for name in exported.components)} <= names
    assert {path.name for path in tmp_path.iterdir()} == names
    for name in names:
        assert (tmp_path / name).read_bytes() == (exported.folder / name).read_bytes(), name


def test_the_hub_runs_the_folder_without_torch(exported: Exported, tmp_path: Path) -> None:
    for name, (_, keywords) in exported.components.items():
        arrays: dict[str, np.ndarray[Any, Any]] = {}
        nest = {key: _nest(value, arrays) for key, value in keywords.items()}
        (tmp_path / f"{name}.json").write_text(json.dumps(nest))
        np.savez(tmp_path / f"{name}.npz", **arrays)
    subprocess.run(
        [sys.executable, Path(__file__).with_name("run_folder.py"), exported.folder, tmp_path],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=True,
        timeout=1200,
    )
    for name, (module, keywords) in exported.components.items():
        found = np.load(tmp_path / f"{name}.out.npz", allow_pickle=True)
        ours = [torch.from_numpy(found[key]) for key in found.files]
        _assert_same(ours, _tensors(_eager(module, keywords)))


def _nest(value: Any, arrays: dict[str, np.ndarray[Any, Any]]) -> Any:
    """A value as JSON holds it: arrays by number, output classes as dicts, caches and the like as lists."""
    if isinstance(value, Tensor):
        name = f"a{len(arrays)}"
        arrays[name] = value.numpy()
        return name
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, dict):
        return {key: _nest(each, arrays) for key, each in value.items()}
    return [_nest(leaf, arrays) for leaf in pytree.tree_leaves(value)]


def test_settings_and_refusals() -> None:
    from transformers.exporters import AutoExportConfig, AutoHfExporter

    config = PteronConfig(dynamic=True, default_max=24, packed_weights=True)
    again = AutoExportConfig.from_dict(json.loads(config.to_json_string()))
    assert again == config
    assert type(AutoHfExporter.from_config(config)) is PteronExporter
    row = ARCHITECTURES[0]
    model = row.build().eval()
    made = PteronExporter().export(model, row.example(), config)
    method = made.runners["model"].method
    batch, length = method.inputs[0].shape or ()
    assert (batch.max, length.max) == (24, 64)  # type: ignore[union-attr]  # 64: positions of the model
    with pytest.raises(ValueError, match="runs on the processor, not on cuda"):
        made.to("cuda")
    assert made.device.type == "cpu"


def test_a_static_cache_is_exported_too() -> None:
    from transformers import GenerationConfig
    from transformers.exporters.utils import decompose_for_generation

    (row,) = [row for row in ARCHITECTURES if row.name == "Llama"]
    torch.manual_seed(0)
    model, example = row.build().eval(), row.example()
    settings = GenerationConfig(cache_implementation="static", max_cache_len=24, max_new_tokens=2)
    components = decompose_for_generation(model, dict(example), generation_config=settings)
    made = PteronExporter().export_for_generation(
        model, dict(example), PteronConfig(), generation_config=settings
    )
    for name, (module, keywords) in components.items():
        ours = made.runners[name](**copy.deepcopy(keywords))
        _assert_same(_tensors(ours), _tensors(_eager(module, keywords)))
