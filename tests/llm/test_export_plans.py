"""Plans of exported language models: several calls for each token are one step, with the same numbers."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pteron
from pteron.llm import export
from tests.llm.tiny_models import FAMILIES, llama
from tests.support.extent import only_in

LAYERS = 2
CACHE = 64


def logits(path: Path, disabled: tuple[str, ...] = ()) -> tuple[Any, str]:
    """Of a prompt, four tokens and a chunk, with the plan."""
    runtime = pteron.Runtime(num_threads=1, disabled_rules=list(disabled))
    program = pteron.load(path, runtime=runtime)
    method = program.load_method()
    ids = np.random.default_rng(0).integers(3, 99, (1, 40))
    bounds = (0, 17, 18, 19, 20, 21, 40)
    rows = [np.asarray(method(ids[:, a:b], np.arange(a, b))) for a, b in pairwise(bounds)]
    return np.concatenate(rows), program.plan_listing("forward")


@pytest.mark.parametrize(
    ("name", "norms", "turned"),
    [
        ("llama", 2 * LAYERS + 1, 2 * LAYERS),
        # Four norms in a layer, of which two are behind attention and the two products.
        ("gemma2", 4 * LAYERS + 1, 2 * LAYERS),
        # Norms of queries and keys.
        pytest.param("qwen3", 4 * LAYERS + 1, 2 * LAYERS, marks=only_in("LLM")),
        # A part of each head is turned; its norms have a mean.
        pytest.param("phi", 0, 2 * LAYERS, marks=only_in("LLM")),
    ],
)
def test_norms_and_rotary_embeddings_are_one_step_each(
    name: str, norms: int, turned: int, tmp_path: Path
) -> None:
    made = export(FAMILIES[name](), tmp_path, max_seq_len=CACHE)
    got, plan = logits(made.path)
    assert plan.count("plan rms norm (") == norms
    assert plan.count("plan rotary") == turned
    for rule in ("fuse_rms_norm", "fuse_rotary"):
        without, other = logits(made.path, (rule,))
        assert other != plan or (rule == "fuse_rms_norm" and norms == 0)
        np.testing.assert_array_equal(got, without, err_msg=rule)


@pytest.mark.parametrize("name", ["llama", pytest.param("gemma3", marks=only_in("LLM"))])
def test_norms_of_sixteen_bit_models_take_their_casts_in(name: str, tmp_path: Path) -> None:
    made = export(FAMILIES[name](), tmp_path, max_seq_len=CACHE, dtype="bfloat16")
    got, plan = logits(made.path)
    assert plan.count("plan rms norm (") == plan.count("rms norm") > LAYERS
    without, other = logits(made.path, ("fuse_rms_norm",))
    assert len(other.splitlines()) > len(plan.splitlines()) + 2 * plan.count("plan rms norm (")
    np.testing.assert_array_equal(got, without)


def test_rows_behind_the_position_are_not_read(tmp_path: Path) -> None:
    """What an earlier conversation left there has no effect, NaN included."""
    model = llama(vocab_size=99)
    made = export(model, tmp_path, max_seq_len=CACHE)
    method = pteron.load(made.path).load_method()
    ids = np.random.default_rng(1).integers(3, 99, (1, CACHE))
    expected = np.asarray(method(ids[:, :9], np.arange(9)))
    method(ids, np.arange(CACHE))
    again = np.asarray(method(ids[:, :9], np.arange(9)))
    np.testing.assert_array_equal(again, expected)
    with torch.no_grad():
        eager = model(torch.from_numpy(ids[:, :9])).logits[:, -1:]
    np.testing.assert_allclose(again, eager.numpy(), rtol=0, atol=1e-4 * float(eager.abs().max()))
