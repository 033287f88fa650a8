"""Models of images and text together."""

from __future__ import annotations

from typing import Any

import torch

from tests.models.zoo_model import Model
from tests.models.zoo_text import VOCABULARY, padded, tokens
from tests.models.zoo_vision import images

_TOWER: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
_TEXT: dict[str, Any] = {**_TOWER, "vocab_size": VOCABULARY, "max_position_embeddings": 32}
_VISION: dict[str, Any] = {**_TOWER, "image_size": 32, "patch_size": 8}


def clip() -> Model:
    from transformers import CLIPConfig, CLIPModel

    config = CLIPConfig(
        text_config={**_TEXT, "eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 0},
        vision_config=_VISION,
        projection_dim=16,
    )
    length = torch.export.Dim("tokens", min=2, max=32)
    calls = [{**padded(3, n), "pixel_values": images(2, 32)} for n in (9, 20)]
    return Model.of(
        CLIPModel(config),
        *calls,
        dynamic={"input_ids": {1: length}, "attention_mask": {1: length}, "pixel_values": None},
    )


def siglip() -> Model:
    from transformers import SiglipConfig, SiglipModel

    config = SiglipConfig(text_config=_TEXT, vision_config=_VISION)
    return Model.of(SiglipModel(config), {"input_ids": tokens(3, 32), "pixel_values": images(2, 32)})


def visual_bert() -> Model:
    from transformers import VisualBertConfig, VisualBertModel

    given = {
        **padded(2, 9),
        "visual_embeds": torch.randn(2, 4, 12),
        "visual_attention_mask": torch.ones(2, 4, dtype=torch.int64),
    }
    return Model.of(VisualBertModel(VisualBertConfig(**_TEXT, visual_embedding_dim=12)), given)
