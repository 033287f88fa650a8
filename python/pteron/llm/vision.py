"""Images in prompts: their tokens, and a cache whose prompts take rows of the image encoder.

The program's methods have ExecuTorch's names: `vision_encoder` takes a tile, `token_embedding` tokens, and
`text_decoder` takes what both give where `forward` takes tokens. All share weights and cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pteron.errors import InputError
from pteron.llm.cache_session import CacheSession, Remaining, no_limit
from pteron.llm.image_tiles import FILE, TileSettings
from pteron.llm.model_folder import PROGRAM, ModelFolder, damaged, read_json
from pteron.llm.pictures import MOST_ROWS, Picture, PromptTokens, place_of
from pteron.llm.tokenizer import Tokenizer

ENCODER, EMBEDDING, DECODER = "vision_encoder", "token_embedding", "text_decoder"
#: Names of special tokens around images, the same in all models of the family.
_AROUND, _WHOLE = "<fake_token_around_image>", "<global-img>"


def takes_images(folder: ModelFolder) -> bool:
    """Has the program an image encoder?"""
    return ENCODER in folder.program.methods


class Vision:
    """How the model of a folder takes images.

    Attributes:
        settings: how an image becomes tiles. `rows`: tokens of a tile. `image_token`: the one that holds the
            place of a row, by number.
    """

    def __init__(self, folder: ModelFolder, tokenizer: Tokenizer) -> None:
        """ProgramError where the program's methods, its configurations and the tokenizer do not fit."""
        edge, self.rows = _shapes(folder)
        stated = read_json(folder.path / FILE)
        if not stated:
            nested = read_json(folder.path / "processor_config.json").get("image_processor")
            stated = nested if isinstance(nested, dict) else {}
        self.settings = TileSettings.stated(stated, edge)
        token = folder.config.get("image_token_id")
        names = {number: name for name, number in tokenizer.special.items()}
        if not isinstance(token, int) or token not in names:
            raise damaged("config.json", f"its image_token_id {token!r} is no special token of the tokenizer")
        self.image_token, self._name = token, names[token]
        missing = [name for name in (_AROUND, _WHOLE) if name not in tokenizer.special]
        if missing:
            raise damaged("the tokenizer", f"it has no tokens {', '.join(missing)}")

    def tokens(self, text: str, pictures: Sequence[Picture], tokenizer: Tokenizer) -> list[int]:
        """The tokens of a prompt, with a number for each row of its images.

        InputError where the text has room for another number of images.
        """
        parts = text.split(self._name)
        if len(parts) - 1 != len(pictures):
            raise InputError(
                f"the prompt has {len(parts) - 1} places for images",
                expected=f"{len(pictures)}, one {self._name} for each image",
                hint=f"texts of messages cannot have {self._name}, and the chat template writes it once",
            )
        numbers: list[int] = []
        tiles: dict[int, tuple[Picture, int]] = {}
        whole = parts[0]
        for picture, behind in zip(pictures, parts[1:], strict=True):
            rows, columns = self.settings.grid(*picture.pixels.shape[:2])
            whole += self._places(rows, columns) + behind
            for tile in range(rows * columns + 1):
                first = picture.first_number(tile)
                tiles[first] = (picture, tile)
                numbers += range(first, first - self.rows, -1)
        tokens = tokenizer.encode(whole, add_special_tokens=False)
        if tokens.count(self.image_token) != len(numbers):
            raise damaged("the tokenizer", f"it does not keep {self._name} apart from what is around it")
        each = iter(numbers)
        found = [next(each) if token == self.image_token else token for token in tokens]
        return PromptTokens(found, self.image_token, tiles)

    def _places(self, rows: int, columns: int) -> str:
        """What stands in a prompt for an image of so many rows and columns of tiles."""
        places = self._name * self.rows
        whole = f"{_AROUND}{_WHOLE}{places}{_AROUND}"
        if not rows:
            return whole
        lines = (
            "".join(f"{_AROUND}<row_{row + 1}_col_{column + 1}>{places}" for column in range(columns)) + "\n"
            for row in range(rows)
        )
        return "".join(lines) + "\n" + whole


class VisionSession(CacheSession):
    """A cache whose prompts may have images. One thread uses it at a time."""

    further_methods = (ENCODER, EMBEDDING, DECODER)

    def __init__(self, folder: ModelFolder, vision: Vision, threads: int | None, chunk: int) -> None:
        super().__init__(folder, threads, chunk)
        self._settings, self._image_token = vision.settings, vision.image_token
        # Of the prompt that is being computed: its tiles, those of an image as pixels, rows of one.
        self._tiles: Mapping[int, tuple[Picture, int]] = {}
        self._pixels: dict[Picture, npt.NDArray[np.float32]] = {}
        self._rows: dict[int, npt.NDArray[np.float32]] = {}

    def prefill(
        self, tokens: Sequence[int], remaining: Remaining = no_limit
    ) -> tuple[npt.NDArray[np.float32], int]:
        """As `CacheSession.prefill`; images that the cache has already are not encoded again."""
        self._tiles = tokens.tiles if isinstance(tokens, PromptTokens) else {}
        try:
            return super().prefill(tokens, remaining)
        finally:
            self._tiles, self._pixels, self._rows = {}, {}, {}

    def _call(self, name: str, tokens: Sequence[int], remaining: Remaining) -> tuple[str, npt.NDArray[Any]]:
        places = [place for place, token in enumerate(tokens) if token < 0]
        if not places:
            return super()._call(name, tokens, remaining)
        ids = np.array([[self._image_token if token < 0 else token for token in tokens]], np.int64)
        rows = np.array(self._methods[EMBEDDING].execute([ids], deadline=remaining())[0])
        for place in places:
            first, row = place_of(tokens[place])
            rows[0, place] = self._tile(first, remaining)[row]
        return DECODER, rows

    def _tile(self, first: int, remaining: Remaining) -> npt.NDArray[np.float32]:
        """The rows of a tile, float32 [rows, width]."""
        if first not in self._rows:
            picture, tile = self._tiles[first]
            if picture not in self._pixels:
                # One image at a time: its tiles take many times its memory.
                self._pixels = {picture: self._settings.tiles(picture.pixels)}
            pixels = self._pixels[picture][tile : tile + 1]
            found = self._methods[ENCODER].execute([pixels], deadline=remaining())[0]
            self._rows = {first: np.array(found[0], np.float32)}
        return self._rows[first]


def _shapes(folder: ModelFolder) -> tuple[int, int]:
    """Pixels along the edge of a tile and rows of the encoder. ProgramError for other methods."""
    program = folder.program
    for name in (EMBEDDING, DECODER):
        if name not in program.methods:
            raise damaged(PROGRAM, f"it has a method {ENCODER}, but no {name}")
    inputs, outputs = program.inputs(ENCODER), program.outputs(ENCODER)
    given = tuple(inputs[0].shape or ()) if len(inputs) == 1 and inputs[0].kind == "tensor" else ()
    made = tuple(outputs[0].shape or ()) if len(outputs) == 1 and outputs[0].kind == "tensor" else ()
    width = tuple(program.outputs(EMBEDDING)[0].shape or ())[-1:]
    is_right = (
        len(given) == 4 and given[:2] == (1, 3) and given[2] == given[3] and inputs[0].dtype == "float32"
    )
    if not is_right or len(made) != 3 or made[0] != 1 or made[2:] != width:
        raise damaged(PROGRAM, f"{ENCODER} takes no float32 [1, 3, edge, edge], or gives no [1, rows, width]")
    edge, rows = given[2], made[1]
    if not isinstance(edge, int) or not isinstance(rows, int) or not 0 < rows <= MOST_ROWS:
        raise damaged(PROGRAM, f"{ENCODER} takes tiles of several sizes")
    return edge, rows
