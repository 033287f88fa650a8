"""The model of the demo: a BERT-style encoder, mean pool, normalisation, with the folder's real weights."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

# torch warns about an enumeration of another package as soon as transformers imports it.
logging.getLogger("torch.utils._pytree").setLevel(logging.ERROR)

from transformers import AutoConfig, AutoModel  # noqa: E402

#: Longest sentence the exported program accepts, in tokens.
MAX_TOKENS = 256


class SentenceEncoder(nn.Module):
    """Token ids to one unit vector per sentence (Reimers and Gurevych, Sentence-BERT, 2019).

    forward(input_ids int64 [1, tokens], attention_mask int64 [1, tokens]) -> float32 [1, hidden]
    """

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        weight = attention_mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * weight).sum(dim=1) / weight.sum(dim=1).clamp(min=1e-9)
        return nn.functional.normalize(mean, dim=1)


def load_model(folder: str) -> SentenceEncoder:
    """Builds the encoder from ``config.json`` and fills it with ``model.safetensors``.

    ``folder`` may also be a hub name; transformers then finds the files.
    """
    config = AutoConfig.from_pretrained(folder)
    path = Path(folder)
    if not (path / "model.safetensors").is_file():
        return SentenceEncoder(AutoModel.from_pretrained(folder).eval()).eval()
    encoder = AutoModel.from_config(config)
    weights = load_file(path / "model.safetensors")
    result = encoder.load_state_dict(weights, strict=False)
    # Older checkpoints carry the position ids as a buffer, and none needs the pooler here.
    unexpected = [k for k in result.unexpected_keys if not k.endswith("position_ids")]
    missing = [k for k in result.missing_keys if not k.startswith("pooler.")]
    if unexpected or missing:
        raise ValueError(
            f"the weights do not fit the configuration: missing {missing}, unexpected {unexpected}"
        )
    return SentenceEncoder(encoder.eval()).eval()


def check_pooling(folder: str) -> None:
    """Refuses folders whose published pooling is not the mean, which is what the demo computes."""
    file = Path(folder) / "1_Pooling" / "config.json"
    if not file.is_file():
        return
    pooling: dict[str, Any] = json.loads(file.read_text())
    if not pooling.get("pooling_mode_mean_tokens", True):
        raise ValueError(f"{file} asks for another pooling than the mean of the tokens")


def example_inputs() -> tuple[Tensor, Tensor]:
    """Inputs to trace with: token ids and mask of 16 tokens."""
    ids = torch.arange(16, dtype=torch.int64).unsqueeze(0) + 1000
    return ids, torch.ones_like(ids)
