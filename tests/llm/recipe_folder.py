"""A folder as a user of transformers' recipe makes it: a small Llama with random weights, its tokenizer
trained here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CACHE = 96
SPECIAL = ("<s>", "</s>", "<|user|>", "<|assistant|>", "<|system|>")
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


@dataclass(frozen=True)
class RecipeFolder:
    """`folder` with the program; `model` is the torch model it was made of."""

    folder: Path
    model: Any


def trained_tokenizer(vocabulary: int = 512) -> Any:
    """Byte-level BPE on a page that never changes: what random models say depends on its tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([(ROOT / "LICENSE").read_text()], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
    )
    return tokenizer


def small_llama(vocabulary: int, seed: int = 0) -> Any:
    """Two layers; weights large enough that texts do not repeat one token."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2 * CACHE,
        initializer_range=0.4,
        bos_token_id=0,
        eos_token_id=1,
    )
    return LlamaForCausalLM(config).eval()


def write_program(model: Any, path: Path, **constants: Any) -> None:
    """The program of transformers' recipe: logits of every position, a cache of `CACHE` tokens."""
    import torch
    from transformers import GenerationConfig
    from transformers.integrations.executorch import TorchExportableModuleForDecoderOnlyLM

    from pteron.exir import to_edge_transform_and_lower

    model.generation_config = GenerationConfig(
        use_cache=True,
        cache_implementation="static",
        cache_config={"batch_size": 1, "max_cache_len": CACHE},
        bos_token_id=0,
        eos_token_id=1,
    )
    with torch.no_grad():
        recipe = TorchExportableModuleForDecoderOnlyLM(model, batch_size=1, max_cache_len=CACHE)
        tokens = torch.export.Dim("tokens", min=1, max=CACHE - 1)
        exported = recipe.export(
            input_ids=torch.tensor([[1, 2, 3]]),
            cache_position=torch.arange(3),
            dynamic_shapes={"input_ids": {1: tokens}, "cache_position": {0: tokens}},
            strict=True,
        )
        program = to_edge_transform_and_lower(exported, constant_methods=constants or None)
        program.to_executorch().save(str(path))


def write_folder(folder: Path, seed: int = 0) -> RecipeFolder:
    """A whole folder."""
    tokenizer = trained_tokenizer()
    model = small_llama(tokenizer.get_vocab_size(), seed)
    write_program(model, folder / "model.pte", get_max_seq_len=CACHE, use_kv_cache=True, get_eos_ids=[1])
    tokenizer.save(str(folder / "tokenizer.json"))
    texts = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(texts))
    model.config.save_pretrained(folder)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 1, "bos_token_id": 0}))
    return RecipeFolder(folder, model)
