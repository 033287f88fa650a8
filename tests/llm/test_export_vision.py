"""What `pteron.llm.export` makes of models with an image encoder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pteron
from pteron.errors import ExportError
from pteron.llm import Generator, export
from tests.llm.recipe_folder import RecipeFolder
from tests.llm.vision_folder import (
    POSITIONS,
    ROWS,
    TILE,
    asked,
    image_processor,
    photo,
    processor,
    small_model,
    tokenizer_of_images,
    transformers_text,
)
from tests.support.extent import only_in


def test_methods(vision: RecipeFolder) -> None:
    program = pteron.load(vision.folder / "model.pte")
    names = ("forward", "forward_all", "text_decoder", "token_embedding", "vision_encoder")
    assert {name for name in program.methods if program.inputs(name)} == set(names)
    methods = program.load_methods(list(names))
    pixels = image_processor()([[photo(50, 70)]], return_tensors="pt")["pixel_values"]
    ids = torch.tensor([[5, 9, 30, 17]])
    with torch.no_grad():
        rows = vision.model.get_image_features(pixels).pooler_output[0]
        embeddings = vision.model.get_input_embeddings()(ids)
        expected = vision.model(inputs_embeds=embeddings).logits[:, -1:]
    found = [methods["vision_encoder"](tile[None].numpy()) for tile in pixels[0]]
    np.testing.assert_allclose(np.concatenate(found, axis=1)[0], rows, atol=2e-5 * float(rows.abs().max()))
    assert found[0].shape == (1, ROWS, 64)
    np.testing.assert_array_equal(methods["token_embedding"](ids.numpy()), embeddings)
    logits = methods["text_decoder"](embeddings.numpy(), np.arange(4))
    np.testing.assert_allclose(logits, expected, atol=2e-4)
    # One cache: tokens go on behind embeddings.
    both = methods["forward"](np.array([[40]]), np.array([4]))
    with torch.no_grad():
        whole = vision.model(input_ids=torch.tensor([[*ids[0].tolist(), 40]])).logits[:, -1:]
    np.testing.assert_allclose(both, whole, atol=2e-4)


def test_weights_are_there_once(vision: RecipeFolder) -> None:
    weights = sum(parameter.nbytes for parameter in vision.model.parameters())
    assert (vision.folder / "model.pte").stat().st_size < 1.1 * weights + 300_000
    stated = json.loads((vision.folder / "preprocessor_config.json").read_text())
    assert stated["max_image_size"] == {"longest_edge": TILE}


@only_in("LLM")
@pytest.mark.parametrize("scheme", ["int8-weight"])
def test_from_a_folder_quantised(scheme: Any, tmp_path: Path) -> None:
    tokenizer = tokenizer_of_images()
    model = small_model(tokenizer, "SmolVLM")
    model.save_pretrained(tmp_path / "model")
    processor(tokenizer).save_pretrained(tmp_path / "model")
    made = export(tmp_path / "model", tmp_path / "out", max_seq_len=256, scheme=scheme)
    seer = Generator(made.folder, threads=1)
    messages = asked(photo(50, 70))
    exact = transformers_text(model, messages, 1)
    found = seer.generate(messages, max_new_tokens=1, logprobs=5)
    assert found.logprobs is not None
    assert exact[0] in [token for token, _ in found.logprobs[0].top]


@only_in("LLM")
def test_without_a_processor_images_are_prepared_as_the_family_does(tmp_path: Path) -> None:
    tokenizer = tokenizer_of_images()
    model = small_model(tokenizer)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    export(model, tmp_path / "out", max_seq_len=64, tokenizer=tmp_path)
    seer = Generator(tmp_path / "out")
    assert seer.vision is not None
    assert (seer.vision.settings.tile, seer.vision.settings.longest, seer.vision.rows) == (
        TILE,
        4 * TILE,
        ROWS,
    )
    assert seer.vision.settings.is_cut


def test_tiles_of_another_size(tmp_path: Path) -> None:
    tokenizer = tokenizer_of_images()
    other = processor(tokenizer, max_image_size={"longest_edge": 2 * TILE})
    with pytest.raises(ExportError, match="tiles of another size"):
        export(small_model(tokenizer), tmp_path / "out", max_seq_len=POSITIONS, tokenizer=other)
