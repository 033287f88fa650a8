"""Images of messages: what a caller may give, and the tokens that stand for them.

In the tokens of a prompt a row of an image is a negative number, made of the image's content. So caches tell
images apart as they tell tokens apart: by comparing numbers.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from pteron.errors import InputError
from pteron.llm.extras import needed

#: Rows of a tile at most; a number's lower bits are its row.
MOST_ROWS = 1 << 16
#: Kinds of parts of a message that hold an image, and where they hold it.
_IMAGE_PARTS = {"image": ("image", "path", "url"), "image_url": ("image_url",)}
_EXPECTED = "uint8 [height, width, 3], a Pillow image, the name of an image file, or a data: URL"


@dataclass(frozen=True, eq=False)
class Picture:
    """An image of a message: `pixels` uint8 [height, width, 3]."""

    pixels: npt.NDArray[np.uint8]

    @cached_property
    def digest(self) -> bytes:
        """Tells this image from others."""
        shape = ",".join(map(str, self.pixels.shape)).encode()
        return hashlib.sha256(shape + b";" + np.ascontiguousarray(self.pixels).tobytes()).digest()

    def first_number(self, tile: int) -> int:
        """What stands for row 0 of a tile; further rows count down."""
        found = hashlib.sha256(self.digest + tile.to_bytes(4, "little")).digest()
        return -1 - int.from_bytes(found[:8], "little") * MOST_ROWS


class PromptTokens(list[int]):
    """Tokens of a prompt with images.

    Attributes:
        image_token: the token of the model that holds the place of a row. `tiles`: first number → the image
            and the number of its tile.
    """

    def __init__(
        self, tokens: Iterable[int], image_token: int, tiles: Mapping[int, tuple[Picture, int]]
    ) -> None:
        super().__init__(tokens)
        self.image_token, self.tiles = image_token, dict(tiles)


def ids_of(tokens: Sequence[int]) -> list[int]:
    """Tokens of the vocabulary: the model's image token where a row of an image stands."""
    if isinstance(tokens, PromptTokens):
        return [tokens.image_token if token < 0 else token for token in tokens]
    return list(tokens)


def place_of(number: int) -> tuple[int, int]:
    """The first number of the tile that a negative number belongs to, and its row."""
    key, row = divmod(-1 - number, MOST_ROWS)
    return -1 - key * MOST_ROWS, row


def has_images(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Is a part of a message an image?"""
    return any(part.get("type") in _IMAGE_PARTS for message in messages for part in _parts(message))


def without_pictures(
    messages: Sequence[Mapping[str, Any]],
) -> tuple[list[dict[str, Any]], list[Picture]]:
    """Messages as chat templates take them, and their images in order.

    Content that is a text becomes a part of its own, as templates of models with images expect.
    """
    pictures: list[Picture] = []
    found = []
    for message in messages:
        content = message.get("content")
        if isinstance(content, str):
            found.append({**message, "content": [{"type": "text", "text": content}]})
            continue
        parts = []
        for part in _parts(message):
            if part.get("type") in _IMAGE_PARTS:
                pictures.append(Picture(_pixels(part)))
                part = {"type": "image"}
            parts.append(part)
        found.append({**message, "content": parts} if parts else dict(message))
    return found, pictures


def storable(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages as JSON takes them: images as objects that hold their pixels, which messages may have, too."""
    found = []
    for message in messages:
        parts = [
            {"type": "image", "image": _stored(_pixels(part))} if part.get("type") in _IMAGE_PARTS else part
            for part in _parts(message)
        ]
        found.append({**message, "content": parts} if has_images([message]) else dict(message))
    return found


def _stored(pixels: npt.NDArray[np.uint8]) -> dict[str, Any]:
    height, width, _ = pixels.shape
    return {"height": height, "width": width, "rgb": base64.b64encode(pixels.tobytes()).decode()}


def _restored(given: Mapping[str, Any]) -> npt.NDArray[np.uint8]:
    """The pixels of an object of `_stored`. InputError where it is none."""
    height, width, content = (given.get(name) for name in ("height", "width", "rgb"))
    try:
        found = np.frombuffer(base64.b64decode(content, validate=True), np.uint8)  # type: ignore[arg-type]
        return found.reshape(height, width, 3)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise InputError("an image that was saved is damaged", expected="height, width and rgb") from None


def _parts(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = message.get("content")
    return (
        [part for part in content if isinstance(part, Mapping)] if isinstance(content, (list, tuple)) else []
    )


def _pixels(part: Mapping[str, Any]) -> npt.NDArray[np.uint8]:
    """The image of a part of a message. InputError where it holds none."""
    names = _IMAGE_PARTS[part["type"]]
    given: Any = next((part[name] for name in names if part.get(name) is not None), None)
    if isinstance(given, Mapping):  # OpenAI's form has an URL, that of `storable` the pixels.
        given = given.get("url") if "url" in given else _restored(given)
    if isinstance(given, str) and given.startswith("data:"):
        return _opened(io.BytesIO(_data(given)), "a data: URL")
    if isinstance(given, str) and given.partition(":")[0].lower() in ("http", "https", "file"):
        raise InputError("images are not fetched", expected=_EXPECTED, got=given[:60])
    if part["type"] == "image" and isinstance(given, (str, os.PathLike)):
        return _opened(given, os.path.basename(given))
    if hasattr(given, "convert") and hasattr(given, "getexif"):
        return _upright(given)
    is_image = isinstance(given, np.ndarray) and given.dtype == np.uint8 and given.ndim == 3
    if not is_image or given.shape[2] != 3 or not given.size:
        got = f"{given.dtype} {list(given.shape)}" if isinstance(given, np.ndarray) else type(given).__name__
        raise InputError("a part of a message is no image", expected=_EXPECTED, got=got)
    found: npt.NDArray[np.uint8] = given
    return found


def _data(url: str) -> bytes:
    """The bytes of a data: URL. InputError where they are not in base64."""
    head, _, body = url.partition(",")
    try:
        if not head.endswith(";base64"):
            raise ValueError
        return base64.b64decode(body, validate=True)
    except (ValueError, binascii.Error):
        raise InputError("the data: URL of an image is not in base64") from None


def _opened(source: Any, name: str) -> npt.NDArray[np.uint8]:
    """The image of a file, by Pillow. OSError where the file cannot be read, InputError where it is none."""
    package = needed("PIL.Image", "images", "an image file")
    content = source if isinstance(source, io.BytesIO) else io.BytesIO(_read(source))
    try:
        return _upright(package.open(content))
    except (OSError, ValueError, SyntaxError, EOFError, package.DecompressionBombError) as error:
        raise InputError(f"{name} is no image that Pillow reads", got=str(error)[:100]) from None


def _read(path: str | os.PathLike[str]) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _upright(image: Any) -> npt.NDArray[np.uint8]:
    """Pixels of a Pillow image, turned as its file says."""
    turned = needed("PIL.ImageOps", "images", "an image file").exif_transpose(image)
    return np.asarray(turned.convert("RGB"))
