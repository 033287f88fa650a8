"""Quantised weights and other element types: sizes of files, and logits against the same model in eager."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pteron
from pteron.llm import export, export_quantised
from pteron.llm.export_quantised import quantise
from tests.llm.tiny_models import VOCABULARY, llama
from tests.support.extent import only_in

_TOKENS = 12
#: Larger than what a file holds beside weights.
_SIZES: dict[str, Any] = {"hidden_size": 512, "intermediate_size": 1024, "vocab_size": 2048}


def _tied() -> Any:
    return llama(**_SIZES, initializer_range=0.02, tie_word_embeddings=True)


def _exported(model: Any, folder: Path, **settings: Any) -> tuple[int, Any]:
    """Bytes of the file; logits of the last of some tokens, which come in two calls."""
    made = export(model, folder, max_seq_len=16, **settings)
    method = pteron.load(made.path).load_method()
    ids = _ids().numpy()
    method(ids[:, :5], np.arange(5))
    return made.file_bytes, method(ids[:, 5:], np.arange(5, _TOKENS))


def _ids() -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (1, _TOKENS), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    "scheme",
    [
        pytest.param("int4-weight", marks=only_in("LLM")),
        pytest.param("int8-weight", marks=only_in("LLM")),
        pytest.param("int8-dynamic", marks=only_in("LLM")),
        "int4-dynamic",
    ],
)
def test_schemes(scheme: str, tmp_path: Path) -> None:
    model = _tied()
    quantised = copy.deepcopy(model)
    quantise(quantised, scheme, tmp_path)
    with torch.no_grad():
        expected = quantised(_ids(), use_cache=False).logits[:, -1:]
        exact = model(_ids(), use_cache=False).logits[:, -1:]
    size, got = _exported(model, tmp_path, scheme=scheme)
    largest = float(exact.abs().max())
    np.testing.assert_allclose(np.asarray(got), expected.numpy(), rtol=0, atol=1e-3 * largest)
    assert float((expected - exact).abs().max()) < 0.3 * largest
    # A byte for each weight, the tied table once, scales; and the program itself.
    assert size < 1.2 * sum(parameter.numel() for parameter in model.parameters()) + 700_000, size
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


@pytest.mark.parametrize("scheme", ["int8-weight", "int4-weight", "int8-dynamic", "int4-dynamic"])
def test_blocks_of_rows_give_what_the_whole_gives(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, parts = _tied(), _tied()
    parts.load_state_dict(whole.state_dict())
    monkeypatch.setattr(export_quantised, "_AT_ONCE", 1 << 30)
    quantise(whole, scheme, tmp_path)
    # Blocks of 31 rows of the table, and one that is shorter.
    monkeypatch.setattr(export_quantised, "_AT_ONCE", 31 * 512 + 5)
    quantise(parts, scheme, tmp_path)
    for (name, one), two in zip(whole.named_modules(), parts.modules(), strict=True):
        if isinstance(one, (torch.nn.Linear, torch.nn.Embedding)):
            assert type(one.weight) is type(two.weight)
            for part in one.weight.tensor_data_names:
                assert torch.equal(getattr(one.weight, part), getattr(two.weight, part)), (name, part)
            if one.weight.target_dtype is not torch.int8:
                # Scales of groups lie in half the bytes.
                assert torch.equal(one.weight.scale, one.weight.scale.bfloat16().float())
            for each in one.weight.tensor_attribute_names:
                assert getattr(one.weight, each) == getattr(two.weight, each)
    head, table = parts.get_output_embeddings().weight, parts.get_input_embeddings().weight
    for part in table.tensor_data_names:
        assert getattr(head, part).data_ptr() == getattr(table, part).data_ptr()
    is_dynamic = head.activation_quantization is not None
    assert (is_dynamic, table.activation_quantization) == (scheme.endswith("dynamic"), None)
    # What is mapped has no name any more.
    assert list(tmp_path.iterdir()) == []


def test_a_tied_table_is_stored_once_and_bfloat16_halves_it(tmp_path: Path) -> None:
    model = _tied()
    with torch.no_grad():
        expected = model(_ids(), use_cache=False).logits[:, -1:]
    weights = sum(parameter.numel() for parameter in model.parameters())
    for dtype, each, limit in (("float32", 4, 1e-4), ("bfloat16", 2, 5e-2)):
        size, got = _exported(model, tmp_path / dtype, dtype=dtype)
        assert size < each * weights + 700_000
        assert np.asarray(got).dtype == np.float32
        largest = float(expected.abs().max())
        np.testing.assert_allclose(np.asarray(got), expected.numpy(), rtol=0, atol=limit * largest)
    assert model.dtype == torch.float32


_GROWTH = """
import sys
from pathlib import Path
import torch
from torch import nn
from pteron.llm.export_quantised import quantise

def anonymous():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) / 1024

class Table(nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.table = nn.Embedding(1, 1)
        self.table.weight = nn.Parameter(rows, requires_grad=False)

    def get_output_embeddings(self):
        return None

    def get_input_embeddings(self):
        return self.table

folder = Path(sys.argv[1])
rows, width = 40_000, 896
(folder / "rows").touch()
stored = torch.from_file(str(folder / "rows"), True, rows * width).view(rows, width)
quantise(Table(stored[:1000]), "int8-weight", folder)
before = anonymous()
quantise(Table(stored), "int8-weight", folder)
print(anonymous() - before)
"""


@pytest.mark.alone
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux says what is in memory")
def test_blocks_leave_no_holes_in_the_heap(tmp_path: Path) -> None:
    """In MiB, of 137 that are quantised. Holes are a matter of luck: without a trimmed heap one process in
    three grows, by up to 130.
    """
    for _ in range(2):
        made = subprocess.run(
            [sys.executable, "-c", _GROWTH, str(tmp_path)], check=True, capture_output=True, text=True
        )
        assert float(made.stdout) < 25
