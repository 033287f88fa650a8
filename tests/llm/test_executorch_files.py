"""Files that ExecuTorch's own tools wrote: its Llama, its lowering, its metadata; text as eager gives it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from pteron.compat.llm_runner import GenerationConfig, TextLLMRunner
from pteron.errors import InputError
from pteron.llm import Generator
from pteron.llm.tokenizer import open_tokenizer
from tests.llm.executorch_llama import random_llama
from tests.llm.recipe_folder import TEMPLATE, trained_tokenizer

_IGNORED = ("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
pytestmark = [pytest.mark.peer, pytest.mark.filterwarnings(*_IGNORED)]

CACHE, CHUNK, VOCABULARY = 80, 16, 512
PROMPT = "The files of a program are checked when they are loaded, and a prompt is longer than a chunk."


@pytest.fixture(scope="module")
def eager() -> Any:
    """ExecuTorch's Llama with random weights, which says ASCII alone."""
    return random_llama(
        std=0.4, n_layers=2, vocab_size=VOCABULARY, max_seq_len=CHUNK + 1, max_context_len=CACHE
    )


@pytest.fixture(scope="module")
def folder(eager: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What its exporter writes, by its functions: one position as input, the last logits, metadata."""
    from executorch import exir
    from executorch.exir.passes.sym_shape_eval_pass import ConstraintBasedSymShapeEvalPass

    place = tmp_path_factory.mktemp("executorch")
    trained_tokenizer().save(str(place / "tokenizer.json"))
    texts = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": TEMPLATE}
    (place / "tokenizer_config.json").write_text(json.dumps(texts))
    read = open_tokenizer(place, {}).token_bytes()
    silent = [number for number, content in enumerate(read) if not content or not content.isascii()]
    with torch.no_grad():
        eager.output.weight[silent] = 0
        example = (torch.tensor([[2, 3, 4]]), {"input_pos": torch.tensor([0])})
        tokens = torch.export.Dim("token_dim", max=CHUNK)
        shapes = ({1: tokens}, {"input_pos": {0: 1}})
        exported = torch.export.export(eager, example, dynamic_shapes=shapes, strict=True)
    metadata = {
        "get_max_seq_len": CHUNK + 1,
        "get_max_context_len": CACHE,
        "get_n_layers": 2,
        "get_vocab_size": VOCABULARY,
        "use_kv_cache": True,
        "use_sdpa_with_kv_cache": False,
        "enable_dynamic_shape": True,
        "get_bos_id": 0,
        "get_eos_ids": [1],
    }
    config = exir.ExecutorchBackendConfig(sym_shape_eval_pass=ConstraintBasedSymShapeEvalPass())
    edge = exir.to_edge_transform_and_lower(exported, constant_methods=metadata)
    (place / "llama.pte").write_bytes(edge.to_executorch(config).buffer)
    return place


def opened(folder: Path) -> Generator:
    return Generator(folder / "llama.pte", tokenizer=folder, threads=1, idle_caches=1)


def greedy(eager: Any, tokens: list[int], count: int) -> list[int]:
    """The text of the model itself."""
    found: list[int] = []
    with torch.no_grad():
        for begin in range(0, len(tokens), CHUNK):
            part = torch.tensor([tokens[begin : begin + CHUNK]])
            logits = eager(part, {"input_pos": torch.tensor([begin])})
        while len(found) < count:
            found.append(int(logits.flatten()[-VOCABULARY:].argmax()))
            place = torch.tensor([len(tokens) + len(found) - 1])
            logits = eager(torch.tensor([found[-1:]]), {"input_pos": place})
    return found


def test_metadata_is_read(folder: Path) -> None:
    generator = opened(folder)
    assert (generator.max_seq_len, generator.eos_ids, generator.bos_id) == (CACHE, {1}, 0)
    signature = generator.folder.signature
    assert (signature.batch, signature.chunk, signature.positions) == (1, CHUNK, "start")
    assert not generator.folder.can_rewind, "nothing is known of a cache without names"
    with pytest.raises(InputError, match="cannot check several tokens"):
        generator.generate(PROMPT, prompt_lookup_num_tokens=2)


def test_text_is_that_of_eager(eager: Any, folder: Path) -> None:
    generator = opened(folder)
    tokens = generator.tokenizer.encode(PROMPT)
    assert len(tokens) > CHUNK
    first = generator.generate(tokens, max_new_tokens=12, ignore_eos=True)
    assert list(first.tokens) == greedy(eager, tokens, 12)
    # The same cache: another beginning, then a prompt that goes on where a text ended.
    other = generator.generate(tokens[5:], max_new_tokens=8, ignore_eos=True)
    assert list(other.tokens) == greedy(eager, tokens[5:], 8)
    assert other.reused_tokens == 0
    longer = [*tokens[5:], *other.tokens, 7]
    last = generator.generate(longer, max_new_tokens=4, ignore_eos=True)
    assert list(last.tokens) == greedy(eager, longer, 4)
    assert last.reused_tokens == len(tokens[5:]) + len(other.tokens) - 1


def test_conversations_are_computed_again_where_the_cache_has_no_names(folder: Path, tmp_path: Path) -> None:
    generator = opened(folder)
    chat = generator.conversation("Be brief.", ignore_eos=True)
    # The text of one token gives that token again; of several a random model may spell its own way.
    chat.send("Why?", max_new_tokens=1)
    chat.save(tmp_path / "chat.bin")
    forked, restored = chat.fork(), generator.restore(tmp_path / "chat.bin")
    settings = {"max_new_tokens": 5, "ignore_eos": True}
    said = chat.send("And?", **settings)
    assert said.reused_tokens > 0
    for other in (forked, restored):
        assert other.send("And?", **settings).tokens == said.tokens


def test_both_runners_give_the_same_text(folder: Path) -> None:
    theirs = pytest.importorskip("executorch.extension.llm.runner._llm_runner")
    paths = (str(folder / "llama.pte"), str(folder / "tokenizer.json"))
    found = []
    for runner, config in (
        (TextLLMRunner(*paths), GenerationConfig),
        (theirs.TextLLMRunner(*paths), theirs.GenerationConfig),
    ):
        pieces: list[str] = []
        settings = config(echo=False, temperature=0.0, max_new_tokens=10)
        # Their runner's chunks are one token longer than their exporter allows.
        runner.generate("The files", settings, pieces.append)
        runner.generate(" and", settings, pieces.append)
        found.append("".join(pieces))
    assert found[0] == found[1]
    assert found[0]
