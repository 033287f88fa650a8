"""Perplexity of a model that is trained here, on a text that ships with Python: as eager gives it, and what
quantised weights cost.
"""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from pydoc_data import topics
from typing import Any

import numpy as np
import pytest
import torch

import pteron
from pteron.llm import export
from tests.llm.recipe_folder import trained_tokenizer
from tests.support.extent import only_in

CONTEXT, STEPS, BATCH, HELD_OUT = 64, 150, 16, 16


@pytest.fixture(scope="module")
def text() -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens to train on, and other ones [sequences, CONTEXT + 1], of the language reference of Python."""
    pages = [topics.topics[name] for name in sorted(topics.topics)]
    tokenizer = trained_tokenizer()
    ids = tokenizer.encode("\n".join(pages)[:200_000], add_special_tokens=False).ids
    whole = len(ids) // (CONTEXT + 1) * (CONTEXT + 1)
    rows = torch.tensor(ids[:whole]).reshape(-1, CONTEXT + 1)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    return rows[order[HELD_OUT:]], rows[order[:HELD_OUT]]


@pytest.fixture(scope="module")
def trained(text: tuple[torch.Tensor, torch.Tensor]) -> Any:
    """A Llama of two layers after so many steps that it knows words."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=512,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2 * CONTEXT,
    )
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    source = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        rows = text[0][torch.randint(len(text[0]), (BATCH,), generator=source)]
        loss = model(input_ids=rows, labels=rows).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def perplexity(logits: torch.Tensor, rows: torch.Tensor) -> float:
    """Of tokens behind the first of each row, from logits [rows, CONTEXT, vocabulary]."""
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
    return math.exp(float(loss))


def logits_of_program(model: Any, folder: Path, rows: torch.Tensor, scheme: Any) -> torch.Tensor:
    """A half of each row as a prompt, the next quarter as a chunk, the rest token by token."""
    made = export(model, folder, max_seq_len=CONTEXT, scheme=scheme, all_logits=True)
    method = pteron.load(made.path).load_methods(["forward", "forward_all"], num_threads=1)["forward_all"]
    bounds = [0, CONTEXT // 2, CONTEXT * 3 // 4, *range(CONTEXT * 3 // 4 + 1, CONTEXT + 1)]
    found = []
    for row in rows[:, :CONTEXT].numpy():
        parts = [
            np.array(method(row[None, begin:end], np.arange(begin, end))) for begin, end in pairwise(bounds)
        ]
        found.append(np.concatenate(parts, axis=1))
    return torch.from_numpy(np.concatenate(found))


@pytest.mark.parametrize(
    ("scheme", "most"),
    [
        (None, 1e-5),
        pytest.param("int8-weight", 0.005, marks=only_in("LLM")),
        pytest.param("int8-dynamic", 0.02, marks=only_in("LLM")),
        ("int4-weight", 0.05),
        ("int4-dynamic", 0.05),
    ],
)
def test_perplexity_is_that_of_eager(
    trained: Any, text: tuple[torch.Tensor, torch.Tensor], tmp_path: Path, scheme: Any, most: float
) -> None:
    rows = text[1]
    with torch.no_grad():
        expected = perplexity(trained(rows[:, :CONTEXT]).logits, rows)
    assert expected < 60, "of 512 tokens: it has learnt something"
    found = perplexity(logits_of_program(trained, tmp_path, rows, scheme), rows)
    print(f"{scheme}: perplexity {found:.3f}, eager float32 {expected:.3f}")
    assert abs(found / expected - 1) <= most
