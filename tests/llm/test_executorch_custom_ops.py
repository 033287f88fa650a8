"""Files of ExecuTorch's own Llama export with its custom operators: logits of its runtime and of eager."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import pteron
from pteron.errors import KernelError
from tests.llm.executorch_llama import random_llama
from tests.support.extent import only_in

_IGNORED = ("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
pytestmark = [pytest.mark.peer, pytest.mark.filterwarnings(*_IGNORED)]

CACHE, CHUNK, VOCABULARY = 64, 16, 128
# Chunks of a prompt, then single tokens.
LENGTHS = (16, 5, 1, 1, 9, 1)
PLAIN = {"llama::update_cache.out", "llama::custom_sdpa.out"}
OPERATORS = {
    "float": PLAIN,
    "quantised cache": {"llama::update_cache.out", "llama::custom_quantized_sdpa.out"},
    "sliding window": {"llama::update_cache_with_indices.out", "llama::custom_sdpa.out"},
    "8da4w in XNNPACK": PLAIN,
}
#: Of these, what `make test` takes.
QUICK = {"quantised cache"}


def eager(kind: str) -> Any:
    """ExecuTorch's Llama with random weights and its source transformations."""
    model = random_llama(
        std=0.2,
        n_layers=1,
        vocab_size=VOCABULARY,
        max_seq_len=CHUNK + 1,
        max_context_len=CACHE,
        use_sdpa_with_kv_cache_op=True,
    )
    from executorch.examples.models.llama.source_transformation import custom_kv_cache, sdpa

    model = custom_kv_cache.replace_kv_cache_with_custom_kv_cache(sdpa.replace_sdpa_with_custom_op(model))
    if kind == "quantised cache":
        model = custom_kv_cache.replace_kv_cache_with_quantized_kv_cache(model)
        model = sdpa.replace_sdpa_with_quantized_sdpa(model)
    if kind == "sliding window":
        model = custom_kv_cache.replace_kv_cache_with_ring_kv_cache(model, [CHUNK])
    if kind == "8da4w in XNNPACK":
        from executorch.examples.models.llama.source_transformation.quantize import quantize

        model = quantize(model, "8da4w", group_size=32)
    return model


def exported(model: Any, kind: str) -> bytes:
    """As `export_llama` writes it: `LLMEdgeManager`, whose tokenizers nobody needs here."""
    if "pytorch_tokenizers" not in sys.modules:
        stand_in: Any = ModuleType("pytorch_tokenizers")
        stand_in.get_tokenizer = None
        sys.modules["pytorch_tokenizers"] = stand_in
    from executorch.extension.llm.export.builder import DType, LLMEdgeManager
    from executorch.extension.llm.export.partitioner_lib import get_xnnpack_partitioner

    example = (torch.tensor([[2, 3, 4]]), {"input_pos": torch.tensor([0])})
    manager: Any = LLMEdgeManager(
        model, "llama", CHUNK + 1, True, example, DType.fp32, enable_dynamic_shape=True, metadata={}
    )
    manager.export().run_canonical_optimizations()
    is_delegated = kind == "8da4w in XNNPACK"
    manager.to_edge_transform_and_lower([get_xnnpack_partitioner()] if is_delegated else None)
    buffer: bytes = manager.to_executorch().export_program.buffer
    return buffer


@pytest.fixture(
    scope="module",
    params=[pytest.param(kind, marks=[] if kind in QUICK else only_in("LLM")) for kind in OPERATORS],
)
def written(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, Path, str]:
    """(the model with its caches as captured, the file, the kind)."""
    kind: str = request.param
    place = tmp_path_factory.mktemp("llama") / "llama.pte"
    place.write_bytes(exported(eager(kind), kind))
    return eager(kind), place, kind


def calls() -> list[tuple[torch.Tensor, int]]:
    """Tokens and their first position."""
    drawn = torch.Generator().manual_seed(1)
    starts = [sum(LENGTHS[:at]) for at in range(len(LENGTHS))]
    return [
        (torch.randint(0, VOCABULARY, (1, length), generator=drawn), start)
        for length, start in zip(LENGTHS, starts, strict=True)
    ]


def test_logits_are_those_of_eager_and_of_their_runtime(written: tuple[Any, Path, str]) -> None:
    model, path, kind = written
    portable = pytest.importorskip("executorch.extension.pybindings.portable_lib")
    pytest.importorskip("executorch.kernels.quantized")
    called = {name for name in pteron.load(path).operators() if name.startswith("llama::")}
    assert called == OPERATORS[kind]
    theirs, ours = portable._load_for_executorch(str(path)), pteron.load(path).load_method("forward")
    # Numbers at a border of quantisation may round to either side; XNNPACK quantises activations otherwise
    # than eager.
    is_exact = kind in ("float", "sliding window")
    within = 1e-4 if is_exact else 5e-2
    of_eager = 0.3 if kind == "8da4w in XNNPACK" else within
    largest = 0.0
    for tokens, start in calls():
        with torch.no_grad():
            expected = model(tokens, {"input_pos": torch.tensor([start])})
        [got] = ours.execute([tokens.numpy(), np.array([start])])
        [other] = theirs.forward([tokens, torch.tensor([start])])
        assert np.shape(got) == tuple(expected.shape)
        largest = max(largest, float(expected.abs().max()))
        assert np.abs(np.asarray(got) - expected.numpy()).max() < of_eager
        assert np.abs(np.asarray(got) - other.numpy()).max() < within
    assert largest > 1.5, "the logits say something"


def test_a_full_cache_is_an_error_and_the_conversation_goes_on(written: tuple[Any, Path, str]) -> None:
    _, path, kind = written
    if kind == "sliding window":
        pytest.skip("a ring has no end")
    method, again = (pteron.load(path).load_method("forward") for _ in range(2))
    tokens = np.arange(CHUNK).reshape(1, CHUNK)
    for start in range(0, CACHE, CHUNK):
        for one in (method, again):
            one.execute([tokens, np.array([start])])
    with pytest.raises(KernelError):
        method.execute([tokens[:, :2], np.array([CACHE - 1])])
    last = [tokens[:, :1], np.array([CACHE - 1])]
    [expected], [got] = again.execute(last), method.execute(last)
    assert np.array_equal(got, expected)
