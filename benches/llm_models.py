"""Llamas of true shapes with random weights, and the files that each engine runs: `llm_speed.py` calls it.

The weights are made once, as transformers' `save_pretrained` writes them. Every engine gets them in its own
form, as its users would make it: `pteron.llm.export`; GGUF files by the gguf package, which llama.cpp and
OpenVINO GenAI read; onnxruntime-genai's model builder.
"""

from __future__ import annotations

import json
import runpy
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Tokens that every cache holds: a prompt of 1,024 with what follows.
CONTEXT = 1280
_NORM_EPSILON = 1e-5
_ROPE_BASE = 10000.0


@dataclass(frozen=True)
class Shape:
    """A Llama. `tied`: is the head the table of the embeddings?"""

    hidden: int
    feed_forward: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int
    tied: bool

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads

    @property
    def linear_weights(self) -> int:
        """Weights of linear layers without the head."""
        attention = 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)
        return self.layers * (attention + 3 * self.hidden * self.feed_forward)

    @property
    def head_weights(self) -> int:
        return self.hidden * self.vocabulary


#: SmolLM's shape, Qwen 2.5's of 0.5 B without its biases, TinyLlama's; "tiny" tries the engines in a minute.
SHAPES = {
    "tiny": Shape(64, 128, 2, 4, 2, 32000, False),
    "135m": Shape(576, 1536, 30, 9, 3, 49152, True),
    "0.5b": Shape(896, 4864, 24, 14, 2, 151936, True),
    "1.1b": Shape(2048, 5632, 22, 32, 4, 32000, False),
}
#: Scheme → bits of a weight of linear layers and of the head, scales included.
BITS = {"f32": (32, 32), "bf16": (16, 16), "int8": (8.5, 8.5), "int4": (4.5, 8.5)}
_PTERON = {
    "f32": {},
    "bf16": {"dtype": "bfloat16"},
    "int8": {"scheme": "int8-weight"},
    "int4": {"scheme": "int4-weight"},
}
_GGUF = {"f32": "F32", "bf16": "BF16", "int8": "Q8_0", "int4": "Q4_0"}


def bytes_of_a_token(name: str, scheme: str) -> float:
    """Bytes of weights that a token reads, in the form of the scheme; the cache is not counted."""
    shape, (linear, head) = SHAPES[name], BITS[scheme]
    if scheme == "int4" and not shape.tied:
        head = linear
    return (shape.linear_weights * linear + shape.head_weights * head) / 8


def write_weights(folder: Path, name: str) -> None:
    """The model as transformers saves it, with a tokenizer of bytes."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = SHAPES[name]
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=shape.hidden,
        intermediate_size=shape.feed_forward,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        vocab_size=shape.vocabulary,
        tie_word_embeddings=shape.tied,
        max_position_embeddings=2048,
        rms_norm_eps=_NORM_EPSILON,
        bos_token_id=0,
        eos_token_id=1,
    )
    LlamaForCausalLM(config).eval().save_pretrained(folder)
    _tokenizer(shape.vocabulary).save(str(folder / "tokenizer.json"))
    stated = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<0>", "eos_token": "<1>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(stated))


def _tokenizer(vocabulary: int) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    tokenizer = Tokenizer(models.BPE(vocab=_tokens(vocabulary), merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<0>", "<1>"])
    return tokenizer


def _tokens(vocabulary: int) -> dict[str, int]:
    """Two special tokens, the 256 bytes in GPT-2's letters, and names that no text has."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = [*map(chr, printable), *(chr(256 + place) for place in range(len(others)))]
    names = ["<0>", "<1>", *letters]
    names += [f"<{number}>" for number in range(len(names), vocabulary)]
    return {name: number for number, name in enumerate(names)}


def make_pteron(weights: Path, target: Path, scheme: str, engine: str) -> None:
    """`pteron.llm.export`."""
    import pteron.llm

    how = {"scheme": f"{scheme}-dynamic"} if "dynamic" in engine else _PTERON[scheme]
    packed, ragged = engine.endswith("packed"), engine.endswith("shared")
    pteron.llm.export(weights, target, max_seq_len=CONTEXT, packed_weights=packed, ragged=ragged, **how)


def make_gguf(weights: Path, target: Path, name: str, scheme: str) -> None:
    """A GGUF file; with 4 bits a table that is embedding and head has 8, as in pteron's scheme."""
    import gguf
    import numpy as np
    from safetensors import safe_open

    shape = SHAPES[name]
    writer = gguf.GGUFWriter(target / "model.gguf", "llama")
    _describe(writer, name, scheme)
    with safe_open(weights / "model.safetensors", framework="numpy") as stored:
        for key in stored.keys():  # noqa: SIM118 - it is no mapping
            if shape.tied and key == "lm_head.weight":
                continue
            array, renamed = stored.get_tensor(key), _gguf_name(key)
            if array.ndim == 1:
                writer.add_tensor(renamed, array)
                continue
            if "attn_q." in renamed or "attn_k." in renamed:
                # llama.cpp turns neighbours, transformers the halves of a head.
                halves = array.reshape(-1, 2, shape.head_dim // 2, shape.hidden)
                array = np.ascontiguousarray(halves.swapaxes(1, 2).reshape(array.shape))
            kind = "Q8_0" if scheme == "int4" and renamed == "token_embd.weight" else _GGUF[scheme]
            form = getattr(gguf.GGMLQuantizationType, kind)
            writer.add_tensor(renamed, gguf.quants.quantize(array, form), raw_dtype=form)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _describe(writer: Any, name: str, scheme: str) -> None:
    import gguf

    shape = SHAPES[name]
    writer.add_name(name)
    writer.add_context_length(2048)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(_NORM_EPSILON)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_rope_freq_base(_ROPE_BASE)
    writer.add_vocab_size(shape.vocabulary)
    kinds = {"f32": "ALL_F32", "bf16": "MOSTLY_BF16", "int8": "MOSTLY_Q8_0", "int4": "MOSTLY_Q4_0"}
    writer.add_file_type(getattr(gguf.LlamaFileType, kinds[scheme]))
    tokens = list(_tokens(shape.vocabulary))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3] + [1] * (len(tokens) - 2))
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)


def _gguf_name(key: str) -> str:
    whole = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    if key in whole:
        return whole[key]
    parts = {
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }
    _, _, layer, rest = key.split(".", 3)
    return f"blk.{layer}.{parts[rest.removesuffix('.weight')]}.weight"


def make_onnxruntime(weights: Path, target: Path, name: str, scheme: str, package: Path) -> None:
    """onnxruntime-genai's model builder, a script in its package."""
    precision = {"f32": "fp32", "int8": "int8", "int4": "int4"}[scheme]
    folder = package / "models"
    sys.path.insert(0, str(folder))
    options = ["--extra_options", "int4_block_size=32", "int4_accuracy_level=4"] if scheme == "int4" else []
    given = ["-i", str(weights), "-o", str(target), "-p", precision, "-e", "cpu", "-c", str(target / "cache")]
    sys.argv = [str(folder / "builder.py"), *given, *options]
    runpy.run_path(sys.argv[0], run_name="__main__")


def make(engine: str, scheme: str, weights: Path, target: Path, name: str, package: Path | None) -> None:
    """Writes what the engine runs into the folder."""
    target.mkdir(parents=True, exist_ok=True)
    if engine.startswith("pteron"):
        make_pteron(weights, target, scheme, engine)
    elif engine == "gguf":
        make_gguf(weights, target, name, scheme)
    else:
        assert package is not None
        make_onnxruntime(weights, target, name, scheme, package)
