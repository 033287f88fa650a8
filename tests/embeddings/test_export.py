"""`pteron.embeddings.export`: families, poolings, modules, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers.sentence_transformer.modules import (
    Dense,
    Dropout,
    LayerNorm,
    Normalize,
    Pooling,
    WeightedLayerPooling,
)

import pteron
from pteron.cli import main
from pteron.embeddings import Embedder, export, export_model
from pteron.errors import ExampleMismatchError
from tests.embeddings.conftest import Exported
from tests.embeddings.tiny_encoders import POSITIONS, TEXTS, bert, word_pieces, written
from tests.support.extent import only_in

BOUND = 1e-5
ALL = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}


def _roberta(vocabulary: int) -> Any:
    from transformers import XLMRobertaConfig, XLMRobertaModel

    # Positions begin behind the padding token's number.
    sizes = {"max_position_embeddings": POSITIONS + 1, "pad_token_id": 0, "initializer_range": 0.3}
    return XLMRobertaModel(XLMRobertaConfig(vocab_size=vocabulary, **SIZES, **sizes))


def _mpnet(vocabulary: int) -> Any:
    from transformers import MPNetConfig, MPNetModel

    sizes = {"max_position_embeddings": POSITIONS + 2, "pad_token_id": 0, "initializer_range": 0.3}
    return MPNetModel(MPNetConfig(vocab_size=vocabulary, **SIZES, **sizes))


def _modern(vocabulary: int) -> Any:
    from transformers import ModernBertConfig, ModernBertModel

    ends = dict.fromkeys(("bos_token_id", "cls_token_id"), 2) | dict.fromkeys(
        ("eos_token_id", "sep_token_id"), 3
    )
    sizes = {"max_position_embeddings": POSITIONS, "pad_token_id": 0, "local_attention": 8}
    return ModernBertModel(ModernBertConfig(vocab_size=vocabulary, **SIZES, **sizes, **ends))


def _t5(vocabulary: int) -> Any:
    from transformers import T5Config, T5EncoderModel

    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
    return T5EncoderModel(T5Config(vocab_size=vocabulary, **sizes, pad_token_id=0))


def _qwen(vocabulary: int) -> Any:
    from transformers import Qwen3Config, Qwen3Model

    sizes = {"num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": POSITIONS}
    return Qwen3Model(Qwen3Config(vocab_size=vocabulary, **SIZES, **sizes, initializer_range=0.3))


def _pooled(mode: Any) -> Callable[[int], Sequence[Any]]:
    return lambda width: [Pooling(width, mode), Normalize()]


def _worst(model: Any, folder: Path, **settings: Any) -> float:
    expected = model.encode(list(TEXTS), show_progress_bar=False, **settings)
    return float(np.abs(Embedder(folder, threads=1).encode(TEXTS, **settings) - expected).max())


@pytest.mark.parametrize(
    ("build", "mode"),
    [
        pytest.param(_roberta, "mean", marks=only_in("LLM")),
        pytest.param(_mpnet, "mean", marks=only_in("LLM")),
        pytest.param(_modern, "cls", marks=only_in("LLM")),
        pytest.param(_t5, "mean", marks=only_in("LLM")),
        (_qwen, "lasttoken"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_families(tmp_path: Path, build: Callable[[int], Any], mode: str) -> None:
    # Decoders' tokenizers put padding in front; here it is behind, where a causal model does not see it.
    side = "left" if build is _qwen else "right"
    model = written(tmp_path / "parts", _pooled(mode), build, word_pieces(padding_side=side))
    made = export(model, tmp_path / "out", max_seq_length=POSITIONS)
    assert made.difference <= BOUND
    assert (made.dimension, made.max_seq_length) == (32, POSITIONS)
    assert _worst(model, made.folder) <= BOUND


def test_every_pooling_at_once(tmp_path: Path) -> None:
    model = written(tmp_path / "parts", lambda width: [Pooling(width, ALL)])
    made = export(model, tmp_path / "out", batch_size=256)
    assert made.dimension == 32 * len(ALL)
    assert _worst(model, made.folder) <= BOUND


# `test_module.py` has one pooling of such.
@only_in("LLM")
def test_prompts_that_are_not_pooled(tmp_path: Path) -> None:
    prompts = {"query": "what is the ", "other": "text: "}
    model = written(
        tmp_path / "parts", lambda width: [Pooling(width, ALL, include_prompt=False)], prompts=prompts
    )
    made = export(model, tmp_path / "out", batch_size=256)
    opened = Embedder(made.folder)
    # All but the token that ends a text.
    assert opened.prompt_tokens("what is the ") == len(model.tokenizer("what is the ")["input_ids"]) - 1
    for name in (None, *prompts):
        assert _worst(model, made.folder, prompt_name=name) <= BOUND, name


def test_dense_layers_and_norms(tmp_path: Path) -> None:
    def modules(width: int) -> list[Any]:
        tokens = Dense(width, 24, module_input_name="token_embeddings", activation_function=torch.nn.GELU())
        return [
            tokens,
            Pooling(24),
            Dropout(0.5),
            LayerNorm(24),
            Dense(24, 16, use_residual=True),
            Normalize(),
        ]

    model = written(tmp_path / "parts", modules)
    model.save(str(tmp_path / "source"))
    made = export(tmp_path / "source", tmp_path / "out", batch_size=1)
    assert made.dimension == 16
    assert "forward_long" not in pteron.load(made.path).methods
    assert _worst(model, made.folder) <= BOUND


@pytest.mark.parametrize(
    ("scheme", "bound"), [pytest.param("int8-weight", 0.05, marks=only_in("LLM")), ("int8-dynamic", 0.15)]
)
def test_schemes(exported: Exported, tmp_path: Path, scheme: Any, bound: float) -> None:
    before = [parameter.clone() for parameter in exported.model.parameters()]
    made = export(exported.model, tmp_path / "out", scheme=scheme, max_seq_length=12)
    assert 0 < made.difference < bound
    assert made.file_bytes < (exported.folder / "model.pte").stat().st_size
    assert all(torch.equal(a, b) for a, b in zip(before, exported.model.parameters(), strict=True))
    assert Embedder(made.folder).max_seq_length == 12


def test_a_program_that_differs_is_not_written(
    exported: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_model, "_difference", lambda *_: 0.5)
    with pytest.raises(ExampleMismatchError, match="vectors differ from the model's"):
        export(exported.model, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def _refused(tmp_path: Path, change: Callable[[Any], object], modules: Any = None) -> str:
    model = written(tmp_path / "parts", modules or _pooled("mean"))
    change(model)
    with pytest.raises(pteron.ExportError) as caught:
        export(model, tmp_path / "out")
    return str(caught.value)


def test_unknown_modules(tmp_path: Path) -> None:
    def modules(width: int) -> list[Any]:
        return [WeightedLayerPooling(width, num_hidden_layers=2), Pooling(width)]

    assert "the module WeightedLayerPooling is not known" in _refused(tmp_path, lambda _: None, modules)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda model: model.train(), "the model is in training mode"),
        (lambda model: model.half(), "the model has weights of torch.float16"),
        (lambda model: setattr(model[0], "query_length", 8), "the Transformer module has query_length"),
        (lambda model: setattr(model[0].tokenizer, "pad_token", None), "no token that fills rows up"),
        (
            lambda model: setattr(model[0], "module_output_name", "sentence_embedding"),
            "gives no vectors of tokens",
        ),
        (lambda model: setattr(model[1], "pooling_mode", "median"), "the pooling median is not known"),
    ],
)
def test_what_is_refused(tmp_path: Path, change: Callable[[Any], object], text: str) -> None:
    assert text in _refused(tmp_path, change)


def test_first_modules_and_lengths(exported: Exported, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    static = SentenceTransformer(
        modules=[StaticEmbedding(word_pieces().backend_tokenizer, embedding_dim=8)], device="cpu"
    )
    with pytest.raises(pteron.ExportError, match="the module StaticEmbedding is not known"):
        export(static.eval(), tmp_path)
    with pytest.raises(pteron.ExportError, match="the model has positions for fewer tokens"):
        export(exported.model, tmp_path, max_seq_length=POSITIONS + 1)
    with pytest.raises(TypeError, match="expected a SentenceTransformer or a folder"):
        export(bert(10), tmp_path)
    for settings in ({"batch_size": 0}, {"max_seq_length": True}, {"scheme": "int3"}):
        with pytest.raises(ValueError, match=f"embeddings.export\\({next(iter(settings))}="):
            export(exported.model, tmp_path, **settings)


def test_no_length_is_stated(tmp_path: Path) -> None:
    tokenizer = word_pieces()
    tokenizer.model_max_length = 10**30
    model = written(tmp_path / "parts", _pooled("mean"), _t5, tokenizer)
    with pytest.raises(pteron.ExportError, match="states how long a text may be"):
        export(model, tmp_path / "out")


def test_command(exported: Exported, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["export-embeddings", str(exported.source), str(tmp_path / "out"), "--max-seq-length", "9"]
    assert main([*arguments, "--json"]) == 0
    stated = json.loads(capsys.readouterr().out)
    assert (stated["dimension"], stated["max_seq_length"]) == (32, 9)
    assert stated["difference"] <= BOUND
    assert Embedder(tmp_path / "out").max_seq_length == 9
    assert main(["export-embeddings", str(tmp_path / "none"), str(tmp_path / "x")]) == 2
    assert "none" in capsys.readouterr().err
