"""A SmolVLM with random weights: tiles of 32 pixels and four tokens, a tokenizer trained here, and what
transformers makes of the same messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt

from tests.llm.recipe_folder import RecipeFolder, trained_tokenizer

TILE, ROWS = 32, 4
POSITIONS = 512
END = "<end_of_utterance>"
SPECIAL = (
    "<image>",
    "<fake_token_around_image>",
    "<global-img>",
    END,
    *(f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5)),
)
TEMPLATE = (
    "<s>{% for message in messages %}{{ message['role'] | capitalize }}:"
    "{% for part in message['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}"
    "{% elif part['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<end_of_utterance>\n"
    "{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
)
Image = npt.NDArray[np.uint8]


def photo(height: int, width: int, seed: int = 0) -> Image:
    """Waves and noise, uint8 [height, width, 3]."""
    chance = np.random.default_rng(seed)
    down, right = np.mgrid[0:height, 0:width] / max(height, width)
    waves = [np.sin(9 * (chance.normal() * down + chance.normal() * right)) for _ in range(3)]
    noise = chance.normal(scale=20, size=(height, width, 3))
    return np.clip(128 + 90 * np.stack(waves, axis=-1) + noise, 0, 255).astype(np.uint8)


def asked(*images: Any, text: str = "What is it?") -> list[dict[str, Any]]:
    """A message with images in front of its text."""
    parts = [{"type": "image", "image": image} for image in images]
    return [{"role": "user", "content": [*parts, {"type": "text", "text": text}]}]


def small_model(tokenizer: Any, kind: str = "Idefics3") -> Any:
    """Two layers of each half; weights large enough that images change the text."""
    import torch
    import transformers

    torch.manual_seed(0)
    end = tokenizer.token_to_id(END)
    text = transformers.LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=POSITIONS,
        initializer_range=0.4,
        bos_token_id=0,
        eos_token_id=end,
        pad_token_id=1,
    )
    vision = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "image_size": TILE,
        "patch_size": 8,
        "initializer_range": 0.3,
    }
    config = getattr(transformers, f"{kind}Config")(
        text_config=text,
        vision_config=vision,
        scale_factor=2,
        image_token_id=tokenizer.token_to_id("<image>"),
        tie_word_embeddings=False,
    )
    model = getattr(transformers, f"{kind}ForConditionalGeneration")(config).eval()
    model.generation_config.eos_token_id, model.generation_config.bos_token_id = end, 0
    return model


def tokenizer_of_images() -> Any:
    """The tokens of the family beside those of two pages."""
    tokenizer = trained_tokenizer(400)
    tokenizer.add_special_tokens(list(SPECIAL))
    return tokenizer


def processor(tokenizer: Any, **settings: Any) -> Any:
    """transformers' processor, with Pillow's filters."""
    from transformers import Idefics3Processor, PreTrainedTokenizerFast

    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token=END, pad_token="</s>"
    )
    return Idefics3Processor(image_processor(**settings), fast, image_seq_len=ROWS, chat_template=TEMPLATE)


@contextmanager
def columns_first() -> Iterator[None]:
    """Pillow resizes in two passes, and rounds between them. Which comes first is its choice from version 13
    on, by sizes; before, columns came first, as they do here meanwhile.
    """
    from PIL import Image as Pillow

    resize = Pillow.Image.resize

    def in_two(self: Any, size: Any, resample: Any = None, **settings: Any) -> Any:
        assert set(settings.values()) <= {None}
        between = resize(self, (size[0], self.size[1]), resample)
        return resize(between, size, resample)

    with mock.patch.object(Pillow.Image, "resize", in_two):
        yield


def image_processor(**settings: Any) -> Any:
    """The part of it that prepares images: an image has up to nine tiles."""
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

    sizes = {"size": {"longest_edge": 3 * TILE}, "max_image_size": {"longest_edge": TILE}}
    return Idefics3ImageProcessorPil(**{**sizes, **settings})


def write_vision_folder(folder: Path) -> RecipeFolder:
    """The folder with the program, and the model."""
    from pteron.llm import export

    tokenizer = tokenizer_of_images()
    model = small_model(tokenizer)
    export(model, folder / "out", max_seq_len=POSITIONS, tokenizer=processor(tokenizer), all_logits=True)
    return RecipeFolder(folder / "out", model)


def transformers_inputs(messages: list[dict[str, Any]]) -> Any:
    """The model's inputs by transformers, of messages with arrays."""
    made = processor(tokenizer_of_images())
    text = made.apply_chat_template(messages, add_generation_prompt=True)
    images = [part["image"] for message in messages for part in message["content"] if part["type"] == "image"]
    with columns_first():
        return made(
            text=text, images=[images] if images else None, add_special_tokens=False, return_tensors="pt"
        )


def transformers_text(model: Any, messages: list[dict[str, Any]], new: int) -> list[int]:
    """The greedy tokens of transformers behind messages."""
    import torch

    inputs = transformers_inputs(messages)
    with torch.no_grad():
        found = model.generate(**inputs, do_sample=False, max_new_tokens=new)
    return found[0, inputs["input_ids"].shape[1] :].tolist()
