"""Images as transformers' processor prepares them, and what is no configuration of one."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from pteron.errors import ProgramError
from pteron.llm.image_resize import FILTERS, resize
from pteron.llm.image_tiles import TileSettings
from tests.llm.vision_folder import TILE, columns_first, image_processor, photo

SIZES = [(96, 96), (40, 200), (333, 50), (20, 24), (1, 70), (3, 1), (200, 301), (97, 96)]


@pytest.mark.parametrize("number", sorted(FILTERS))
def test_sizes_are_those_of_pillow(number: int) -> None:
    from PIL import Image

    chance = np.random.default_rng(number)
    for _ in range(12):
        height, width, tall, wide = chance.integers(1, 160, 4).tolist()
        image = chance.integers(0, 256, (height, width, 3), dtype=np.uint8)
        with columns_first():
            expected = np.asarray(Image.fromarray(image).resize((wide, tall), resample=number))
        np.testing.assert_array_equal(resize(image, tall, wide, number), expected)


@pytest.mark.parametrize("number", sorted(FILTERS))
def test_the_order_of_passes_costs_two_steps_of_255(number: int) -> None:
    from PIL import Image

    down, right = np.mgrid[0:150, 0:86] / 150
    image = np.stack([128 + 100 * np.sin(7 * (down * at - right)) for at in range(3)], axis=-1).astype(
        np.uint8
    )
    for tall, wide in ((40, 60), (40, 120), (200, 120), (8, 26)):
        expected = np.asarray(Image.fromarray(image).resize((wide, tall), resample=number))
        assert np.abs(resize(image, tall, wide, number).astype(int) - expected).max() <= 2


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"do_image_splitting": False},
        {"do_resize": False},
        {"resample": 3, "size": {"longest_edge": 5000}, "max_image_size": {"longest_edge": 1024}},
        {"resample": 2, "image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6], "rescale_factor": 0.01},
        {"do_normalize": False},
        {"do_rescale": False},
    ],
)
def test_tiles_are_those_of_transformers(settings: dict[str, Any]) -> None:
    theirs = image_processor(**settings)
    tile = settings.get("max_image_size", {"longest_edge": TILE})["longest_edge"]
    ours = TileSettings.stated(json.loads(theirs.to_json_string()), tile)
    for height, width in SIZES if tile == TILE else [(300, 3000)]:
        image = photo(height, width, seed=height)
        with columns_first():
            expected = theirs(
                [[image]], return_row_col_info=True, return_tensors="np", input_data_format="channels_last"
            )
        assert ours.grid(height, width) == (expected["rows"][0][0], expected["cols"][0][0])
        np.testing.assert_array_equal(ours.tiles(image), expected["pixel_values"][0])


@pytest.mark.parametrize(
    ("stated", "text"),
    [
        ({"image_processor_type": "CLIPImageProcessor"}, "'CLIPImageProcessor', not as Idefics 3"),
        ({"max_image_size": {"longest_edge": 64}}, "64 pixels along an edge, those of the program 32"),
        ({"max_image_size": 32}, "max_image_size states no longest_edge"),
        ({"size": {"height": 1}}, "size states no longest_edge"),
        ({"size": {"longest_edge": True}}, "size states no longest_edge"),
        ({"resample": 9}, "resample is 9"),
        ({"do_resize": "yes"}, "do_resize is neither true nor false"),
        ({"rescale_factor": "a"}, "rescale_factor is no number"),
        ({"image_mean": [1, 2]}, "image_mean does not state three numbers"),
        ({"image_std": [1, 2, 0]}, "image_std does not state three numbers"),
    ],
)
def test_damaged_configurations(stated: dict[str, Any], text: str) -> None:
    with pytest.raises(ProgramError, match=text):
        TileSettings.stated(stated, TILE)
