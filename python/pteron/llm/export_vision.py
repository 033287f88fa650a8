"""Models with an image encoder, Idefics 3 and SmolVLM: further methods beside `forward`.

This family is what small models with images are made of: every tile of an image has one size and one number
of tokens, positions are plain numbers and attention is causal, so that a decoder needs nothing but rows of
the encoder in the place of embeddings.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from pteron.errors import ExportError
from pteron.llm import export_attention

#: Types of configurations, as transformers names them.
KINDS = ("idefics3", "smolvlm")
#: The file of what prepares images.
PREPROCESSOR = "preprocessor_config.json"
_PROCESSOR = "processor_config.json"


def takes_images(model: Any) -> bool:
    """Is the model of the family?"""
    return model.config.model_type in KINDS


def attention(model: Any) -> str | dict[str, str]:
    """The implementation of attention to set: that over a cache is for the decoder alone."""
    if not takes_images(model):
        return export_attention.NAME
    return {"text_config": export_attention.NAME, "vision_config": "sdpa"}


class _Encoder(nn.Module):
    """`vision_encoder(pixel_values)`: float32 [1, 3, edge, edge] to float32 [1, rows, width]."""

    def __init__(self, model: Any, positions: Tensor) -> None:
        super().__init__()
        vision = model.model.vision_model
        self.patches, self.layers = vision.embeddings.patch_embedding, vision.encoder
        self.norm, self.connector = vision.post_layernorm, model.model.connector
        self.register_buffer("positions", positions, persistent=False)

    def forward(self, pixel_values: Tensor) -> Tensor:
        pixels = pixel_values.to(self.patches.weight.dtype)
        hidden = self.patches(pixels).flatten(2).transpose(1, 2) + self.positions
        hidden = self.layers(inputs_embeds=hidden, attention_mask=None).last_hidden_state
        found: Tensor = self.connector(self.norm(hidden))
        return found.float()


class _Embedding(nn.Module):
    """`token_embedding(input_ids)`: int64 [batch, tokens] to float32 [batch, tokens, width]."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.table = model.get_input_embeddings()

    def forward(self, input_ids: Tensor) -> Tensor:
        found: Tensor = self.table(input_ids)
        return found.float()


def positions_of(model: Any, dtype: torch.dtype) -> Tensor:
    """What the encoder adds to the patches of a whole tile: [patches, width].

    A tile has no padding, so the rows that the model looks up are always the same.
    """
    embeddings = model.model.vision_model.embeddings
    found: list[Tensor] = []
    table = embeddings.position_embedding
    hook = table.register_forward_hook(lambda _module, _given, made: found.append(made))
    side = embeddings.image_size // embeddings.patch_size
    edge = embeddings.image_size
    try:
        mask = torch.ones(1, side, side, dtype=torch.bool)
        embeddings(torch.zeros(1, 3, edge, edge, dtype=table.weight.dtype), mask)
    finally:
        hook.remove()
    return found[0][0].detach().to(dtype)


def vision_methods(
    prepared: Any, positions: Tensor, batch_size: int, max_seq_len: int
) -> dict[str, ExportedProgram]:
    """The methods of an image encoder and of embeddings, by ExecuTorch's names."""
    edge = prepared.model.vision_model.embeddings.image_size
    encoder = _Encoder(prepared, positions).eval()
    ids = torch.zeros(batch_size, min(3, max_seq_len), dtype=torch.int64)
    length = Dim("tokens", min=1, max=max_seq_len)
    shapes = {"input_ids": {1: length}} if max_seq_len > 1 else None
    return {
        "vision_encoder": torch.export.export(encoder, (torch.zeros(1, 3, edge, edge),), strict=False),
        "token_embedding": torch.export.export(
            _Embedding(prepared).eval(), (ids,), dynamic_shapes=shapes, strict=False
        ),
    }


def preprocessor(model: Any, tokenizer: Any) -> tuple[str, str]:
    """Name and text of the file that says how images are prepared: as the processor or the folder states
    that came with the tokenizer, else as the family does by default.

    ExportError where it makes tiles of another size than the encoder takes.
    """
    edge = model.config.vision_config.image_size
    stated = _stated(tokenizer)
    if stated is None:
        sizes = {"size": {"longest_edge": 4 * edge}, "max_image_size": {"longest_edge": edge}}
        stated = {"image_processor_type": "Idefics3ImageProcessor", "resample": 1, **sizes}
    tile = stated.get("max_image_size")
    if isinstance(tile, dict) and tile.get("longest_edge") != edge:
        raise ExportError(
            "llm.export: the processor makes tiles of another size than the image encoder takes",
            expected=f"max_image_size {edge}",
            got=str(tile.get("longest_edge")),
        )
    return PREPROCESSOR, json.dumps(stated, indent=2)


def _stated(tokenizer: Any) -> dict[str, Any] | None:
    own = getattr(tokenizer, "image_processor", None)
    if own is not None:
        found: dict[str, Any] = json.loads(own.to_json_string())
        return found
    if not isinstance(tokenizer, (str, os.PathLike)):
        return None
    for name, key in ((PREPROCESSOR, None), (_PROCESSOR, "image_processor")):
        path = Path(tokenizer) / name
        if path.exists():
            whole = json.loads(path.read_text(encoding="utf-8"))
            part = whole if key is None else whole.get(key)
            if isinstance(part, dict):
                return part
    return None
