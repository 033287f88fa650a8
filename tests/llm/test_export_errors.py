"""What `pteron.llm.export` refuses, and what it says; nothing is captured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import nn

import pteron
import pteron.llm
from tests.llm.tiny_models import POSITIONS, llama, mamba


def export(model: Any, folder: Path, max_seq_len: int = 16, **settings: Any) -> None:
    """Nothing is written."""
    try:
        pteron.llm.export(model, folder / "out", max_seq_len=max_seq_len, **settings)
    finally:
        assert not (folder / "out").exists()


def test_training_mode(tmp_path: Path) -> None:
    with pytest.raises(pteron.ExportError, match=r"training mode.*call model\.eval\(\)"):
        export(llama().train(), tmp_path)


def test_other_models(tmp_path: Path) -> None:
    from transformers import LlamaModel

    with pytest.raises(TypeError, match="a model of transformers, got Linear"):
        export(nn.Linear(2, 2).eval(), tmp_path)
    with pytest.raises(pteron.ExportError, match="LlamaModel is no decoder-only model with a head"):
        export(LlamaModel(llama().config).eval(), tmp_path)
    with pytest.raises(pteron.ExportError, match=r"Mamba2.* keeps states of recurrences"):
        export(mamba("Mamba2", num_heads=4, head_dim=16, n_groups=1), tmp_path)
    with pytest.raises(pteron.ExportError, match=r"all_logits=True.*takes one token in a call"):
        export(mamba(), tmp_path, all_logits=True)
    with pytest.raises(pteron.ExportError, match="training mode"):
        export(mamba().train(), tmp_path)


def test_settings(tmp_path: Path) -> None:
    with pytest.raises(pteron.ExportError, match=f"at most {POSITIONS}"):
        export(llama(), tmp_path, POSITIONS + 1)
    with pytest.raises(ValueError, match=r"max_seq_len=\.\.\.\): expected a number from 1 up, got 0"):
        export(llama(), tmp_path, 0)
    with pytest.raises(ValueError, match=r"scheme=.*got 'int3'"):
        export(llama(), tmp_path, scheme="int3")
    with pytest.raises(ValueError, match=r"dtype=.*got 'int8'"):
        export(llama(), tmp_path, dtype="int8")
    rope = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    stretched = llama(rope_parameters=rope)
    stretched.config.max_position_embeddings = 4 * POSITIONS
    with pytest.raises(pteron.ExportError, match="change with the length of the text"):
        export(stretched, tmp_path, 2 * POSITIONS)


def test_attention_that_a_family_computes_itself(tmp_path: Path) -> None:
    from transformers import BloomConfig, BloomForCausalLM

    sizes = {"vocab_size": 9, "hidden_size": 8, "n_layer": 1, "n_head": 2}
    with pytest.raises(pteron.ExportError, match=r"Bloom.*does not take its attention|padding mask"):
        export(BloomForCausalLM(BloomConfig(**sizes)).eval(), tmp_path)
