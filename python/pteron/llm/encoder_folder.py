"""The folder of an encoder-decoder, and a session whose `encode` and `forward` share one state."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from pteron.errors import InputError
from pteron.llm.cache_session import CacheSession, Remaining, no_limit
from pteron.llm.model_folder import PROGRAM, ModelFolder, damaged

#: The method that takes a source.
ENCODE = "encode"


class EncoderDecoderFolder(ModelFolder):
    """As `ModelFolder`, with what `encode` takes.

    Attributes:
        is_text: does it take tokens, int64 [1, N]? Otherwise a spectrogram, float32 [1, bands, frames].
        source_shape: bands and frames; for tokens (1, most tokens).
    """

    def __init__(self, path: str | os.PathLike[str], *, is_text: bool) -> None:
        """Opens the folder.

        Raises what `ModelFolder` raises; InputError where it holds no encoder-decoder of this kind.
        """
        super().__init__(path)
        if ENCODE not in self.program.methods:
            raise InputError(
                "the folder holds no encoder-decoder", hint="open a decoder with pteron.llm.Generator"
            )
        if self.signature.batch != 1:
            raise damaged(PROGRAM, f"it takes {self.signature.batch} sequences in a call, not one")
        inputs = self.program.inputs(ENCODE)
        shape = tuple(inputs[0].shape or ()) if len(inputs) == 1 and inputs[0].kind == "tensor" else ()
        most = [extent if isinstance(extent, int) else extent.max for extent in shape]
        kind = (inputs[0].dtype, len(shape)) if shape else None
        if kind not in (("int64", 2), ("float32", 3)) or most[0] != 1:
            raise damaged(
                PROGRAM, f"{ENCODE} takes neither tokens int64 [1, N] nor float32 [1, bands, frames]"
            )
        self.is_text = kind == ("int64", 2)
        self.source_shape = (most[-2], most[-1])
        if self.is_text != is_text:
            name = "Text2TextGenerator" if self.is_text else "Transcriber"
            raise InputError(
                f"the model's source is {'a text' if self.is_text else 'audio'}",
                hint=f"open the folder with pteron.llm.{name}",
            )

    @cached_property
    def start_token(self) -> int:
        """The token that every answer begins with."""
        found = [self.constants.get("decoder_start_token_id")]
        found += [each.get("decoder_start_token_id") for each in (self.generation_config, self.config)]
        start = next((value for value in found if value is not None), None)
        vocabulary = self.signature.vocabulary
        if not isinstance(start, int) or isinstance(start, bool) or not 0 <= start < vocabulary:
            raise damaged("generation_config.json", "no decoder_start_token_id within the vocabulary")
        return start


class SourceSession(CacheSession):
    """A state for one source and the tokens of its answer. One thread uses it at a time."""

    further_methods = (ENCODE,)

    def __init__(self, folder: ModelFolder, threads: int | None, chunk: int) -> None:
        super().__init__(folder, threads, chunk)
        self._source: npt.NDArray[Any] | None = None

    def set_source(self, source: npt.NDArray[Any]) -> None:
        """The source of the next answer; the call that follows encodes it."""
        self._source = source
        self.rewind(0)

    def prefill(
        self, tokens: Sequence[int], remaining: Remaining = no_limit
    ) -> tuple[npt.NDArray[np.float32], int]:
        """As `CacheSession.prefill`, behind the encoder."""
        if self._source is not None:
            self._methods[ENCODE].execute([self._source], deadline=remaining())
            self._source = None
        return super().prefill(tokens, remaining)

    def rewind(self, length: int) -> int:
        """Forgets tokens of the answer behind the first `length`; the source stays."""
        length = min(length, len(self._tokens))
        del self._tokens[length:]
        return length
