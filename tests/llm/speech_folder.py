"""A Whisper with random weights, windows of one second and a tokenizer made here; sounds for it."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.llm.recipe_folder import RecipeFolder, trained_tokenizer
from tests.llm.tiny_encoder_decoders import POSITIONS, whisper

RATE = 16_000
NAMED = (
    "<|end|>",
    "<|start|>",
    "<|en|>",
    "<|de|>",
    "<|fr|>",
    "<|translate|>",
    "<|transcribe|>",
    "<|notimes|>",
)
#: Steps of 0.02 s in a window.
STEPS = 50


def write_speech_folder(folder: Path) -> RecipeFolder:
    """The folder with the program, and the model."""
    from pteron.llm import export

    tokenizer = trained_tokenizer(300)
    tokenizer.add_special_tokens(list(NAMED))
    tokenizer.add_tokens([f"<|{step * 0.02:.2f}|>" for step in range(STEPS + 1)])
    tokenizer.save(str(folder / "tokenizer.json"))
    end, start, en, de, fr, translate, transcribe, no_times = (tokenizer.token_to_id(name) for name in NAMED)
    ends = {"eos_token_id": end, "pad_token_id": end, "decoder_start_token_id": start, "bos_token_id": end}
    model = whisper(vocab_size=tokenizer.get_vocab_size(), init_std=0.3, **ends)
    stated: dict[str, Any] = {
        **ends,
        "lang_to_id": {"<|en|>": en, "<|de|>": de, "<|fr|>": fr},
        "task_to_id": {"translate": translate, "transcribe": transcribe},
        "no_timestamps_token_id": no_times,
        "is_multilingual": True,
        "max_initial_timestamp_index": 20,
        "suppress_tokens": [7, 8, start, en, de, fr, translate, transcribe],
        "begin_suppress_tokens": [9, end],
    }
    for name, value in stated.items():
        setattr(model.generation_config, name, value)
    export(model, folder / "out", max_seq_len=POSITIONS, tokenizer=folder)
    return RecipeFolder(folder / "out", model)


def sound(seconds: float, rate: int = RATE, seed: int = 0) -> npt.NDArray[np.float32]:
    """Tones that come and go, float32 [frames]; the same at every rate."""
    chance = np.random.default_rng(seed)
    at = np.arange(round(seconds * rate)) / rate
    found = np.zeros_like(at)
    for pitch in chance.uniform(100, 3000, 8):
        found += np.sin(2 * np.pi * (pitch * at + chance.uniform())) * np.sin(chance.uniform(1, 9) * at) ** 2
    return (found / 10).astype(np.float32)


def write_wave(
    path: Path,
    samples: npt.NDArray[Any],
    rate: int = RATE,
    bits: int = 16,
    kind: int = 1,
    extensible: bool = False,
) -> Path:
    """A WAV file of samples from -1 to 1, [frames] or [frames, channels]."""
    channels = 1 if samples.ndim == 1 else samples.shape[1]
    if kind == 3:
        body = samples.astype(f"<f{bits // 8}").tobytes()
    elif bits == 8:
        body = np.clip(samples * 128 + 128, 0, 255).astype(np.uint8).tobytes()
    else:
        whole = np.clip(np.round(samples * 2.0 ** (bits - 1)), -(2.0 ** (bits - 1)), 2.0 ** (bits - 1) - 1)
        wide = whole.astype("<i4").reshape(-1, 1).view(np.uint8)
        body = wide[:, : bits // 8].tobytes()
    step = channels * bits // 8
    layout = struct.pack("<HHIIHH", 0xFFFE if extensible else kind, channels, rate, rate * step, step, bits)
    if extensible:
        layout += struct.pack("<HHIH", 22, bits, 0, kind) + bytes(14)
    chunks = b"".join(
        name + struct.pack("<I", len(content)) + content + b"\0" * (len(content) % 2)
        for name, content in ((b"fmt ", layout), (b"LIST", b"odd"), (b"data", body))
    )
    path.write_bytes(b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks)
    return path
