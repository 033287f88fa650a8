"""Language models with a key-value cache of fixed size: prefill, then one token at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tests.models.zoo_model import Inputs, Method, Model
from tests.models.zoo_text import VOCABULARY, tokens

#: Positions in the cache.
CACHE = 24
PROMPT = 7
STEPS = 3


def _positions(start: int, length: int) -> Tensor:
    return torch.arange(start, start + length)


def with_static_cache(model: Any) -> nn.Module:
    """The model with its cache as buffers; arguments `input_ids` and `cache_position`."""
    from transformers.integrations.executorch import TorchExportableModuleForDecoderOnlyLM

    _ask_for_static_cache(model)
    wrapped: nn.Module = TorchExportableModuleForDecoderOnlyLM(model, batch_size=1, max_cache_len=CACHE).model
    return wrapped.eval()


def with_static_cache_and_positions(model: Any) -> nn.Module:
    """The same for models that would otherwise count positions in a mask as long as the tokens so far."""
    from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

    class WithPositions(TorchExportableModuleWithStaticCache):  # type: ignore[misc]
        def forward(self, input_ids: Tensor, cache_position: Tensor) -> Tensor:
            for layer in self.static_cache.layers:
                layer.cumulative_length.copy_(cache_position[0])
            logits: Tensor = self.model(
                input_ids=input_ids,
                position_ids=cache_position.unsqueeze(0),
                past_key_values=self.static_cache,
                use_cache=True,
            ).logits
            return logits

    _ask_for_static_cache(model)
    return WithPositions(model, batch_size=1, max_cache_len=CACHE).eval()


def _ask_for_static_cache(model: Any) -> None:
    model.eval()
    model.generation_config.use_cache = True
    model.generation_config.cache_implementation = "static"


def decoder(model: Any, with_cache: Callable[[Any], nn.Module] = with_static_cache) -> Model:
    """One method for prompts and single tokens: the number of tokens per call is dynamic."""
    sequence = tokens(1, PROMPT + STEPS)
    with torch.no_grad():
        whole = model.eval()(input_ids=sequence, use_cache=False).logits
    bounds = [(0, PROMPT), *((PROMPT + n, PROMPT + n + 1) for n in range(STEPS))]
    calls: list[tuple[str, Inputs]] = [
        (
            "forward",
            {"input_ids": sequence[:, start:stop], "cache_position": _positions(start, stop - start)},
        )
        for start, stop in bounds
    ]
    length = torch.export.Dim("tokens", min=1, max=CACHE - 1)
    method = Method(
        with_cache(model),
        calls[0][1],
        {"input_ids": {1: length}, "cache_position": {0: length}},
        options={"strict": True},
    )
    return Model({"forward": method}, calls, [whole[:, start:stop] for start, stop in bounds])


_SMALL: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_GROUPED = {**_SMALL, "num_key_value_heads": 2}


def gpt2() -> Model:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=64, n_embd=32, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2
    )
    return decoder(GPT2LMHeadModel(config))


def opt() -> Model:
    from transformers import OPTConfig, OPTForCausalLM

    config = OPTConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        ffn_dim=48,
        max_position_embeddings=64,
        word_embed_proj_dim=32,
    )
    return decoder(OPTForCausalLM(config), with_static_cache_and_positions)


def llama() -> Model:
    from transformers import LlamaConfig, LlamaForCausalLM

    return decoder(LlamaForCausalLM(LlamaConfig(**_GROUPED)))


def mistral() -> Model:
    from transformers import MistralConfig, MistralForCausalLM

    return decoder(MistralForCausalLM(MistralConfig(**_GROUPED, sliding_window=None)))


def qwen2() -> Model:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    return decoder(Qwen2ForCausalLM(Qwen2Config(**_GROUPED)))


def qwen3() -> Model:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    return decoder(Qwen3ForCausalLM(Qwen3Config(**_GROUPED, head_dim=8)))


def gemma() -> Model:
    from transformers import GemmaConfig, GemmaForCausalLM

    return decoder(GemmaForCausalLM(GemmaConfig(**_GROUPED, head_dim=8)))


def gemma3() -> Model:
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    config = Gemma3TextConfig(
        **_GROUPED,
        head_dim=8,
        sliding_window=4,
        query_pre_attn_scalar=8,
        layer_types=["sliding_attention", "full_attention"],
    )
    return decoder(Gemma3ForCausalLM(config))


def phi() -> Model:
    from transformers import PhiConfig, PhiForCausalLM

    return decoder(PhiForCausalLM(PhiConfig(**_SMALL)))


def phi3() -> Model:
    from transformers import Phi3Config, Phi3ForCausalLM

    return decoder(Phi3ForCausalLM(Phi3Config(**_GROUPED)))


def gpt_neox() -> Model:
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    return decoder(GPTNeoXForCausalLM(GPTNeoXConfig(**_SMALL)))


def smollm3() -> Model:
    from transformers import SmolLM3Config, SmolLM3ForCausalLM

    return decoder(SmolLM3ForCausalLM(SmolLM3Config(**_GROUPED, no_rope_layer_interval=2)))


def mixtral() -> Model:
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(**_GROUPED, num_local_experts=4, num_experts_per_tok=2, sliding_window=None)
    return decoder(MixtralForCausalLM(config))


def qwen3_moe() -> Model:
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    config = Qwen3MoeConfig(
        **_GROUPED, head_dim=8, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24
    )
    return decoder(Qwen3MoeForCausalLM(config))
