"""Modules of sentence-transformers behind its transformer, as they are exported: rows end in padding.

Pooling is written out here, because that of sentence-transformers finds out in every call on which side
rows are filled up. Dense layers and norms are used as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from sentence_transformers.sentence_transformer.modules import Dense, Dropout, LayerNorm, Normalize, Pooling
from torch import Tensor, nn

from pteron.errors import ExportError

#: Modules whose own `forward` is exported.
_AS_THEY_ARE = (Dense, Dropout, LayerNorm, Normalize)
_MODES = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
#: Smallest divisor of a mean: a row without tokens that count becomes zeros.
_LEAST = 1e-9


class PooledTokens(nn.Module):
    """Vectors of tokens [B, T, D] and masks [B, T] to vectors of texts [B, D times modes]."""

    def __init__(self, modes: Sequence[str], is_part: bool) -> None:
        """`is_part`: tokens of the prompt do not count, so that the tokens that do may begin anywhere."""
        super().__init__()
        self.modes, self.is_part = modes, is_part

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        hidden, counted = features["token_embeddings"], features["pooled_mask"]
        found = [self._pooled(mode, hidden, counted) for mode in self.modes]
        features["sentence_embedding"] = found[0] if len(found) == 1 else torch.cat(found, dim=-1)
        return features

    def _pooled(self, mode: str, hidden: Tensor, counted: Tensor) -> Tensor:
        weight = counted.unsqueeze(-1).to(hidden.dtype)
        match mode:
            case "cls":
                return _row(hidden, counted.argmax(dim=1)) if self.is_part else hidden[:, 0]
            case "max":
                return hidden.masked_fill(weight == 0, float("-inf")).amax(dim=1)
            case "lasttoken":
                places = torch.arange(hidden.shape[1]) + 1
                return _row(hidden * weight, (counted * places).argmax(dim=1))
        if mode == "weightedmean":
            weight = weight * (torch.arange(hidden.shape[1]) + 1).to(hidden.dtype)[None, :, None]
        total, divisor = (hidden * weight).sum(dim=1), weight.sum(dim=1).clamp(min=_LEAST)
        return total / (divisor.sqrt() if mode == "mean_sqrt_len_tokens" else divisor)


def exported_modules(modules: Sequence[nn.Module]) -> tuple[list[nn.Module], bool]:
    """What is exported for modules behind the transformer, and whether a prompt's tokens do not count.

    ExportError, which names it, for a module that is not known.
    """
    found: list[nn.Module] = []
    excludes = False
    for module in modules:
        if type(module) in _AS_THEY_ARE:
            found.append(module)
        elif type(module) is Pooling:
            excludes = excludes or not module.include_prompt
            found.append(PooledTokens(_modes(module), not module.include_prompt))
        else:
            names = ", ".join(kind.__name__ for kind in (*_AS_THEY_ARE, Pooling))
            raise ExportError(
                f"embeddings.export: the module {type(module).__name__} is not known",
                expected=f"behind the transformer {names}",
            )
    return found, excludes


def _modes(module: Any) -> tuple[str, ...]:
    stated: Any = module.pooling_mode
    modes = (stated,) if isinstance(stated, str) else tuple(stated)
    unknown = [mode for mode in modes if mode not in _MODES]
    if unknown:
        raise ExportError(
            f"embeddings.export: the pooling {unknown[0]} is not known",
            expected=f"one of {', '.join(_MODES)}",
        )
    return modes


def _row(hidden: Tensor, places: Tensor) -> Tensor:
    """[B, D]: of each text the vector of one token."""
    index = places[:, None, None].expand(-1, 1, hidden.shape[-1])
    return torch.gather(hidden, 1, index).squeeze(1)
