"""ExecuTorch's Llama with random weights, for tests of files that its tools write."""

from __future__ import annotations

from typing import Any

import pytest
import torch


def random_llama(std: float, **settings: Any) -> Any:
    """A model of width 64 with a cache, in eval mode; matrices have the standard deviation `std`.

    `settings` are further arguments of ExecuTorch's `ModelArgs`. Without its examples the test is
    skipped.
    """
    llama = pytest.importorskip("executorch.examples.models.llama.llama_transformer")
    arguments = pytest.importorskip("executorch.examples.models.llama.model_args").ModelArgs(
        dim=64,
        hidden_dim=128,
        n_heads=4,
        n_kv_heads=2,
        use_kv_cache=True,
        enable_dynamic_shape=True,
        **settings,
    )
    torch.manual_seed(0)
    model = llama.construct_transformer(arguments).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.normal_(std=std)
    return model
