"""What `pteron.llm.export` refuses or leaves out, and what it says."""

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
    with pytest.raises(ValueError, match=r"max_chunk=\.\.\.\): expected a number from 1 up, got 0"):
        export(llama(), tmp_path, max_chunk=0)
    with pytest.raises(ValueError, match="decoders whose layers have caches of their own"):
        export(llama(), tmp_path, max_chunk=4, ragged=True)
    with pytest.raises(ValueError, match="decoders whose layers have caches of their own"):
        export(mamba(), tmp_path, max_chunk=4)
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


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("Llava", ["images"]),
        ("Qwen2VL", ["images"]),
        ("Gemma3", ["images"]),
        ("PaliGemma", ["images"]),
        ("Qwen2Audio", ["sound"]),
        ("SmolVLM", []),
        ("Llama", []),
        ("Gemma3Text", []),
    ],
)
def test_families_with_images_or_sound(name: str, inputs: list[str]) -> None:
    import transformers

    from pteron.llm.export_left_out import inputs_left_out

    assert inputs_left_out(getattr(transformers, f"{name}Config")()) == inputs


def _llava() -> Any:
    from transformers import CLIPVisionConfig, LlavaConfig, LlavaForConditionalGeneration

    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision = CLIPVisionConfig(image_size=4, patch_size=2, projection_dim=8, **sizes)
    config = LlavaConfig(vision_config=vision, text_config=llama().config, vision_feature_layer=-1)
    return LlavaForConditionalGeneration(config).eval()


def test_images_of_an_unknown_family_are_left_out_with_a_warning(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"family llava the text part alone.*encoder of images is left out"):
        made = pteron.llm.export(_llava(), tmp_path / "out", max_seq_len=16)
    assert "vision_encoder" not in pteron.load(made.path).methods


def test_a_processor_of_images_for_an_unknown_family(tmp_path: Path) -> None:
    class Processor:
        image_processor = object()

    with pytest.raises(pteron.ExportError, match=r"family llava.*Processor, which prepares images"):
        export(_llava(), tmp_path, tokenizer=Processor())
