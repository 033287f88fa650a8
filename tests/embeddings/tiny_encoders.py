"""Small models of sentence-transformers with random weights, and a tokenizer made here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.llm.recipe_folder import ROOT

#: Tokens that the small models have positions for.
POSITIONS = 40
TEXTS = (
    "Every step of the tests",
    "The files",
    "",
    "A report says which commands were run, when, and on which machine, so that a reader can run them again.",
    "What does a commit say?",
    "step " * 60,
    "Émile, naïve: 中文 🙂",
    "The files",
)


def word_pieces(vocabulary: int = 300, padding_side: str = "right") -> Any:
    """A WordPiece tokenizer of transformers: [CLS] text [SEP]."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=vocabulary, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator([(ROOT / "LICENSE").read_text()], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=POSITIONS,
        padding_side=padding_side,
        model_input_names=["input_ids", "attention_mask"],
    )


def bert(vocabulary: int) -> Any:
    """Two layers."""
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    return BertModel(
        BertConfig(vocab_size=vocabulary, **sizes, max_position_embeddings=POSITIONS, initializer_range=0.3)
    )


def written(
    folder: Path,
    modules: Callable[[int], Sequence[Any]],
    build: Callable[[int], Any] = bert,
    tokenizer: Any = None,
    **settings: Any,
) -> Any:
    """A `SentenceTransformer` over a folder that is written first.

    `modules`: what stands behind the transformer, by the width of its vectors. `settings`: those of
    `SentenceTransformer`.
    """
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Transformer

    torch.manual_seed(0)
    tokenizer = tokenizer or word_pieces()
    build(len(tokenizer)).eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    first = Transformer(str(folder))
    whole = [first, *modules(first.get_embedding_dimension())]
    return SentenceTransformer(modules=whole, device="cpu", **settings).eval()
