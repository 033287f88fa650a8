"""Encoder-decoder models as programs of two methods: `encode`, and `decode` with a cache of its own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tests.models.zoo_decoders import CACHE
from tests.models.zoo_model import Inputs, Method, Model
from tests.models.zoo_text import VOCABULARY, tokens

SOURCE = 11
PREFIX = 3
STEPS = 2


class Encode(nn.Module):
    """The encoder's last hidden state."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.encoder = model.get_encoder()

    def forward(self, source: Tensor) -> Tensor:
        hidden: Tensor = self.encoder(source).last_hidden_state
        return hidden


class Decode(nn.Module):
    """Logits of the next tokens; keys and values of the tokens before stay in buffers.

    Keys and values of the encoder's result are computed in every call.
    """

    def __init__(self, model: Any, cache_length: int) -> None:
        from transformers import StaticCache
        from transformers.integrations.executorch import get_head_shapes

        super().__init__()
        self.decoder, self.head = model.get_decoder(), model.get_output_embeddings()
        self.bias = getattr(model, "final_logits_bias", None)
        self.cache = StaticCache(config=model.config, max_cache_len=cache_length)
        heads, width = get_head_shapes(model.config)
        self.cache.early_initialization(1, heads, width, torch.float32, torch.device("cpu"))
        for i, layer in enumerate(self.cache.layers):
            self.register_buffer(f"keys_{i}", layer.keys, persistent=False)
            self.register_buffer(f"values_{i}", layer.values, persistent=False)
            self.register_buffer(f"length_{i}", layer.cumulative_length, persistent=False)

    def forward(self, target: Tensor, encoded: Tensor, cache_position: Tensor) -> Tensor:
        from transformers import DynamicCache, EncoderDecoderCache

        for layer in self.cache.layers:
            layer.cumulative_length.copy_(cache_position[0])
        hidden = self.decoder(
            input_ids=target,
            encoder_hidden_states=encoded,
            past_key_values=EncoderDecoderCache(self.cache, DynamicCache()),
            use_cache=True,
        ).last_hidden_state
        logits: Tensor = self.head(hidden)
        return logits if self.bias is None else logits + self.bias


def _encoder_decoder(model: Any, source: Tensor, source_name: str, dynamic_source: Any) -> Model:
    model.eval()
    target = tokens(1, PREFIX + STEPS, seed=3)
    encode = Encode(model)
    with torch.no_grad():
        encoded = encode(source)
        whole = model(**{source_name: source, "decoder_input_ids": target, "use_cache": False}).logits
    bounds = [(0, PREFIX), *((PREFIX + n, PREFIX + n + 1) for n in range(STEPS))]
    decodes: list[tuple[str, Inputs]] = [
        (
            "decode",
            {
                "target": target[:, start:stop],
                "encoded": encoded,
                "cache_position": torch.arange(start, stop),
            },
        )
        for start, stop in bounds
    ]
    length = torch.export.Dim("tokens", min=1, max=CACHE - 1)
    states = torch.export.Dim("states", min=2, max=64)
    methods = {
        "encode": Method(encode, {"source": source}, {"source": dynamic_source} if dynamic_source else None),
        "decode": Method(
            Decode(model, CACHE),
            decodes[0][1],
            {
                "target": {1: length},
                "encoded": {1: states} if dynamic_source else None,
                "cache_position": {0: length},
            },
            options={"strict": True},
        ),
    }
    return Model(
        methods,
        [("encode", {"source": source}), *decodes],
        [encoded, *(whole[:, start:stop] for start, stop in bounds)],
    )


def _translation(model: Any) -> Model:
    words = torch.export.Dim("words", min=2, max=48)
    return _encoder_decoder(model, tokens(1, SOURCE), "input_ids", {1: words})


_SMALL: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}


def t5() -> Model:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=VOCABULARY,
        d_model=32,
        d_kv=8,
        d_ff=48,
        num_layers=2,
        num_heads=4,
        relative_attention_num_buckets=8,
        tie_word_embeddings=False,
        decoder_start_token_id=0,
    )
    return _translation(T5ForConditionalGeneration(config))


def bart() -> Model:
    from transformers import BartConfig, BartForConditionalGeneration

    return _translation(
        BartForConditionalGeneration(
            BartConfig(**_SMALL, max_position_embeddings=64, forced_eos_token_id=None)
        )
    )


def marian() -> Model:
    from transformers import MarianConfig, MarianMTModel

    return _translation(
        MarianMTModel(MarianConfig(**_SMALL, max_position_embeddings=64, forced_eos_token_id=None))
    )


def m2m_100() -> Model:
    from transformers import M2M100Config, M2M100ForConditionalGeneration

    return _translation(M2M100ForConditionalGeneration(M2M100Config(**_SMALL, max_position_embeddings=64)))


def whisper() -> Model:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        **_SMALL,
        num_mel_bins=10,
        max_source_positions=16,
        max_target_positions=32,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    mel = torch.randn(1, 10, 32, generator=torch.Generator().manual_seed(4))
    return _encoder_decoder(WhisperForConditionalGeneration(config), mel, "input_features", None)
