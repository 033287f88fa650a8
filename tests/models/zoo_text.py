"""Text encoders: any number of tokens, some of them padding."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tests.models.zoo_model import Model

VOCABULARY = 99

_SMALL: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
}


def tokens(batch: int, length: int, seed: int = 1) -> Tensor:
    """Token numbers above the special ones."""
    return torch.randint(5, VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(seed))


def padded(batch: int, length: int) -> dict[str, Tensor]:
    """Tokens and the mask of a batch whose last row is shorter."""
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[-1, length - length // 3 :] = 0
    return {"input_ids": tokens(batch, length), "attention_mask": mask}


def _text_encoder(module: nn.Module, least: int = 2) -> Model:
    length = torch.export.Dim("tokens", min=least, max=48)
    calls = [padded(2, n) for n in (9, least, 33)]
    return Model.of(module, *calls, dynamic={"input_ids": {1: length}, "attention_mask": {1: length}})


def bert() -> Model:
    from transformers import BertConfig, BertModel

    return _text_encoder(BertModel(BertConfig(**_SMALL)))


def distilbert() -> Model:
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    config = DistilBertConfig(
        vocab_size=VOCABULARY, dim=32, n_layers=2, n_heads=4, hidden_dim=48, max_position_embeddings=64
    )
    return _text_encoder(DistilBertForSequenceClassification(config))


def roberta() -> Model:
    from transformers import RobertaConfig, RobertaForTokenClassification

    return _text_encoder(RobertaForTokenClassification(RobertaConfig(**_SMALL)))


def albert() -> Model:
    from transformers import AlbertConfig, AlbertModel

    return _text_encoder(AlbertModel(AlbertConfig(**_SMALL, embedding_size=16)))


def electra() -> Model:
    from transformers import ElectraConfig, ElectraForPreTraining

    return _text_encoder(ElectraForPreTraining(ElectraConfig(**_SMALL, embedding_size=16)))


def mpnet() -> Model:
    from transformers import MPNetConfig, MPNetModel

    return _text_encoder(MPNetModel(MPNetConfig(**_SMALL)))


def deberta_v2() -> Model:
    from transformers import DebertaV2Config, DebertaV2Model

    config = DebertaV2Config(
        **_SMALL,
        relative_attention=True,
        position_buckets=8,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        pos_att_type=["p2c", "c2p"],
        position_biased_input=False,
        conv_kernel_size=3,
    )
    return _text_encoder(DebertaV2Model(config))


def modernbert() -> Model:
    from transformers import ModernBertConfig, ModernBertForMaskedLM

    config = ModernBertConfig(
        **_SMALL,
        local_attention=8,
        global_attn_every_n_layers=2,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        cls_token_id=1,
        sep_token_id=2,
    )
    return _text_encoder(ModernBertForMaskedLM(config))


def mobilebert() -> Model:
    from transformers import MobileBertConfig, MobileBertModel

    config = MobileBertConfig(
        **_SMALL, embedding_size=16, intra_bottleneck_size=16, num_feedforward_networks=2
    )
    # The embedding joins each token with its neighbours; capture fixes the case of one neighbour.
    return _text_encoder(MobileBertModel(config), least=3)


def squeezebert() -> Model:
    from transformers import SqueezeBertConfig, SqueezeBertModel

    config = SqueezeBertConfig(**_SMALL, embedding_size=32)
    return _text_encoder(SqueezeBertModel(config))
