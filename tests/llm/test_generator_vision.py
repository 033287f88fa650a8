"""Messages with images: transformers' tokens and greedy text, caches that tell images apart, errors."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import shutil
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pteron
from pteron.llm import Generator
from pteron.llm.pictures import ids_of
from pteron.llm.server import app
from pteron.llm.vision import VisionSession
from tests.llm.recipe_folder import RecipeFolder
from tests.llm.test_generator_server import called
from tests.llm.vision_folder import ROWS, TILE, asked, photo, transformers_inputs, transformers_text

NEW = 12
ENDLESS: dict[str, Any] = {"max_new_tokens": NEW, "ignore_eos": True}


@pytest.fixture
def seer(vision: RecipeFolder) -> Generator:
    """A generator of its own."""
    return Generator(vision.folder, threads=1)


@pytest.fixture
def changed(vision: RecipeFolder, tmp_path: Path) -> Callable[..., Path]:
    """A copy of the folder with entries of a JSON file changed; no entries: without the file."""

    def copy(file: str, **entries: Any) -> Path:
        folder = Path(shutil.copytree(vision.folder, tmp_path / "copy"))
        path = folder / file
        path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))
        return folder

    return copy


def messages_of(*sizes: tuple[int, int], seed: int = 0) -> list[dict[str, Any]]:
    """A question about images of these sizes."""
    return asked(*(photo(*size, seed=seed + at) for at, size in enumerate(sizes)))


@pytest.mark.parametrize("sizes", [[(50, 96)], [(20, 20), (30, 200)], [(64, 64), (96, 32), (10, 10)], []])
@pytest.mark.parametrize("chunk", [512, 7])
def test_greedy_text_is_that_of_transformers(
    vision: RecipeFolder, sizes: list[tuple[int, int]], chunk: int
) -> None:
    messages = messages_of(*sizes)
    seer = Generator(vision.folder, threads=1, prefill_chunk=chunk)
    tokens = ids_of(seer.tokens_of(messages))
    assert tokens == transformers_inputs(messages)["input_ids"][0].tolist()
    expected = transformers_text(vision.model, messages, NEW)
    result = seer.generate(messages, max_new_tokens=NEW)
    assert list(result.tokens) == expected
    assert result.prompt_tokens == len(tokens)


def test_images_change_the_text(seer: Generator) -> None:
    texts = {seer.generate(messages_of((40, 60), seed=seed), **ENDLESS).tokens for seed in range(3)}
    assert len(texts) == 3


def test_guesses_and_penalties_see_the_image_token(vision: RecipeFolder, seer: Generator) -> None:
    messages = messages_of((40, 60))
    plain = seer.generate(messages, **ENDLESS)
    assert seer.generate(messages, prompt_lookup_num_tokens=3, **ENDLESS).tokens == plain.tokens
    inputs = transformers_inputs(messages)
    settings = {"do_sample": False, "max_new_tokens": NEW, "repetition_penalty": 1.3}
    expected = vision.model.generate(**inputs, **settings)[0, inputs["input_ids"].shape[1] :].tolist()
    found = seer.generate(messages, max_new_tokens=NEW, repetition_penalty=1.3)
    assert list(found.tokens) == expected


def test_caches_tell_images_apart(
    vision: RecipeFolder, seer: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other = messages_of((40, 60)), messages_of((40, 60), seed=5)
    expected = {seed: seer.generate(messages_of((40, 60), seed=seed), **ENDLESS) for seed in (0, 5)}
    fresh = Generator(vision.folder, threads=1)
    assert fresh.generate(first, **ENDLESS).tokens == expected[0].tokens
    again = fresh.generate(other, **ENDLESS)
    assert again.tokens == expected[5].tokens
    # What both have is what stands in front of the image.
    assert again.reused_tokens == sum(1 for _ in takewhile(lambda token: token >= 0, seer.tokens_of(other)))
    calls = []
    tile = VisionSession._tile
    monkeypatch.setattr(
        VisionSession, "_tile", lambda self, *given: calls.append(given) or tile(self, *given)
    )
    longer = asked(other[0]["content"][0]["image"], text="What is it? Where?")
    assert fresh.generate(longer, **ENDLESS).reused_tokens > ROWS
    assert not calls


def test_conversations(seer: Generator, tmp_path: Path) -> None:
    first, second = messages_of((40, 60)), messages_of((96, 30), seed=3)
    chat = seer.conversation("Look.", **ENDLESS)
    said = chat.send(first[0])
    whole = seer.generate(
        [
            {"role": "system", "content": "Look."},
            *first,
            {"role": "assistant", "content": said.text},
            *second,
        ],
        **ENDLESS,
    )
    other = chat.fork()
    chat.save(tmp_path / "chat.bin")
    restored = seer.restore(tmp_path / "chat.bin", **ENDLESS)
    for each in (chat, other, restored):
        answer = each.send(second)
        assert answer.tokens == whole.tokens
        assert answer.reused_tokens > 2 * ROWS
    damaged = [*restored.messages]
    damaged[1] = {"role": "user", "content": [{"type": "image", "image": {"height": 3, "rgb": "AAAA"}}]}
    with pytest.raises(pteron.InputError, match="an image that was saved is damaged"):
        seer.generate(damaged)


def test_batches_and_streams(seer: Generator) -> None:
    prompts = [messages_of((40, 60), seed=seed) for seed in range(3)]
    expected = [seer.generate(prompt, **ENDLESS) for prompt in prompts]
    found = seer.generate_batch(prompts, parallel=2, **ENDLESS)
    assert [each.tokens for each in found] == [each.tokens for each in expected]
    assert "".join(seer.stream(prompts[0], **ENDLESS)) == expected[0].text


def test_forms_of_images(seer: Generator, tmp_path: Path) -> None:
    from PIL import Image

    pixels = photo(40, 60)
    expected = seer.generate(asked(pixels), **ENDLESS).tokens
    picture, path, content = Image.fromarray(pixels), tmp_path / "a.png", io.BytesIO()
    picture.save(path)
    picture.save(content, "png")
    url = "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()
    for given in (picture, path, str(path), url):
        assert seer.generate(asked(given), **ENDLESS).tokens == expected
    parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "What is it?"}]
    assert seer.generate([{"role": "user", "content": parts}], **ENDLESS).tokens == expected
    # A camera that was held sideways says so.
    turned, exif = tmp_path / "b.png", Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(np.rot90(pixels)).save(turned, exif=exif)
    assert seer.generate(asked(turned), **ENDLESS).tokens == expected


def test_what_is_refused_leaves_the_conversation_as_it_was(seer: Generator, tmp_path: Path) -> None:
    text = tmp_path / "text.png"
    text.write_text("no image")
    image = photo(40, 60)
    chat = seer.conversation(**ENDLESS)
    chat.send(asked(image))
    before, cached = chat.messages, chat.cached_tokens
    cases: list[tuple[Any, str]] = [
        (asked(np.zeros((4, 4), np.uint8)), r"a part of a message is no image.*uint8 \[4, 4\]"),
        (asked(np.zeros((4, 4, 4), np.uint8)), r"uint8 \[4, 4, 4\]"),
        (asked(np.zeros((0, 4, 3), np.uint8)), r"uint8 \[0, 4, 3\]"),
        (asked(np.zeros((4, 4, 3), np.float32)), r"float32 \[4, 4, 3\]"),
        (asked(None), "NoneType"),
        (asked(text), "text.png is no image that Pillow reads"),
        (asked("https://example.com/a.png"), "images are not fetched"),
        (asked("data:image/png,abc"), "not in base64"),
        (asked("data:image/png;base64,AAAA"), "a data: URL is no image"),
        (asked(image, text="An <image> here?"), "3 places for images.*expected 2"),
        (asked(*[image] * 12), "does not fit into the cache"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": str(text)}]}], "is no image"),
    ]
    for message, match in cases:
        with pytest.raises(pteron.InputError, match=match):
            chat.send(message)
    with pytest.raises(FileNotFoundError):
        chat.send(asked(tmp_path / "missing.png"))
    assert len(chat.messages) == len(before)
    assert chat.cached_tokens == cached
    alone = seer.generate([*before, *asked(image)], **ENDLESS)
    assert chat.send(asked(image)).tokens == alone.tokens


def test_an_encoder_that_fails_harms_nothing(seer: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = messages_of((90, 90))
    expected = seer.generate(messages, **ENDLESS).tokens
    chat, calls = seer.conversation(**ENDLESS), []
    tile = VisionSession._tile

    def failing(self: VisionSession, *given: Any) -> Any:
        calls.append(given)
        if len(calls) == 3 * ROWS:
            raise pteron.Cancelled("stopped")
        return tile(self, *given)

    with monkeypatch.context() as patched:
        patched.setattr(VisionSession, "_tile", failing)
        assert chat.stream(messages).result.finish_reason == "cancelled"
    chat = seer.conversation(**ENDLESS)
    assert chat.send(messages).tokens == expected
    late = seer.generate(messages, deadline=0.0, **ENDLESS)
    assert late.finish_reason == "deadline"
    assert seer.generate(messages, **ENDLESS).tokens == expected


def test_the_endpoint_takes_images_that_a_request_holds(seer: Generator, generator: Generator) -> None:
    from PIL import Image

    pixels, content = photo(40, 60), io.BytesIO()
    Image.fromarray(pixels).save(content, "png")
    url = "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()
    image = {"type": "image_url", "image_url": {"url": url}}
    text = {"type": "text", "text": "What is it?"}

    def answer(owner: Generator, *parts: Any) -> Any:
        body = {"messages": [{"role": "user", "content": list(parts)}], "max_tokens": NEW}
        sent = asyncio.run(called(app(owner), body, "/v1/chat/completions"))
        return sent[0]["status"], json.loads(sent[1]["body"])

    status, found = answer(seer, image, text)
    expected = seer.generate(asked(pixels), max_new_tokens=NEW)
    assert (status, found["choices"][0]["message"]["content"]) == (200, expected.text)
    assert found["usage"]["prompt_tokens"] == expected.prompt_tokens
    refused: list[tuple[Generator, Any, str]] = [
        (generator, image, "the model takes no images"),
        (seer, {**image, "image_url": {"url": "file:///etc/hostname"}}, "begins with data:"),
        (seer, {"type": "image", "image": "/etc/hostname"}, "texts and images"),
        (seer, {**image, "image_url": {"url": "data:image/png;base64,AAAA"}}, "is no image"),
    ]
    for owner, part, match in refused:
        status, found = answer(owner, part, text)
        assert status == 400
        assert match in found["error"]["message"]


def test_a_model_without_an_encoder(generator: Generator) -> None:
    with pytest.raises(pteron.InputError, match="the model takes no images"):
        generator.generate(asked(photo(4, 4)))


@pytest.mark.parametrize(
    ("file", "entries", "text"),
    [
        ("config.json", {"image_token_id": "a"}, "image_token_id 'a' is no special token"),
        ("config.json", {"image_token_id": 30}, "image_token_id 30 is no special token"),
        (
            "preprocessor_config.json",
            {"max_image_size": {"longest_edge": 64}},
            f"those of the program {TILE}",
        ),
        ("preprocessor_config.json", {"resample": None}, "resample is None"),
    ],
)
def test_damaged_folders(changed: Callable[..., Path], file: str, entries: dict[str, Any], text: str) -> None:
    with pytest.raises(pteron.ProgramError, match=text):
        Generator(changed(file, **entries))


def test_what_is_stated_elsewhere(vision: RecipeFolder, seer: Generator, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(vision.folder, tmp_path / "copy"))
    (folder / "preprocessor_config.json").unlink()
    messages = messages_of((50, 96))
    expected = seer.generate(messages, **ENDLESS).tokens
    # processor_config.json, which the processor wrote, states the same.
    assert Generator(folder, threads=1).generate(messages, **ENDLESS).tokens == expected
    template = (folder / "chat_template.jinja").read_text()
    (folder / "chat_template.jinja").unlink()
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": template}))
    assert Generator(folder, threads=1).generate(messages, **ENDLESS).tokens == expected
