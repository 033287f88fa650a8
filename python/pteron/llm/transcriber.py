"""`Transcriber`: a folder with a Whisper model, a WAV file in, text out, without torch and transformers."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pteron.errors import DeadlineExceeded, InputError
from pteron.llm.cache_session import SessionPool
from pteron.llm.encoder_folder import EncoderDecoderFolder, SourceSession
from pteron.llm.log_mel import LogMel
from pteron.llm.model_folder import damaged, read_json
from pteron.llm.sampling import SamplingParameters
from pteron.llm.speech_prompt import SpeechPrompt, TokenChooser, cut_at_times
from pteron.llm.speech_quality import NAMES, SpeechQuality, probability, quality
from pteron.llm.tokenizer import Tokenizer, open_tokenizer_for
from pteron.llm.wave_file import Wave, mono, read_wave

#: Seconds of a sound at most: its spectrogram is in memory as a whole.
MOST_SECONDS = 4 * 3600
#: Columns of the spectrogram in a step of the model's times.
_COLUMNS = 2

#: A WAV file, or samples from -1 to 1: float [frames] or [frames, channels].
Sound = str | os.PathLike[str] | npt.NDArray[Any]


@dataclass(frozen=True)
class Segment:
    """A part of what was said.

    Attributes:
        start, end: seconds from the beginning of the sound. `text`: without spaces around it.
        tokens: of the model, those of times among them.
    """

    start: float
    end: float
    text: str
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Transcript:
    """What was said.

    Attributes:
        text: all of it. `segments`: in order.
        language: the code that was given or found; None for a model of one language.
        duration: seconds of the sound.
    """

    text: str
    segments: tuple[Segment, ...]
    language: str | None
    duration: float

    def __str__(self) -> str:
        return self.text


class Transcriber:
    """Writes down speech with the model of a folder that `pteron.llm.export` made of a Whisper.

    Several threads may call it; the weights are there once.

    Attributes:
        folder: the program and what its files state. `tokenizer`: of the folder. `mel`: how spectrograms are
            made. `prompt`: languages, tasks and tokens of the model.
    """

    def __init__(self, folder: str | os.PathLike[str], *, threads: int | None = None) -> None:
        """Opens a folder. `threads`: of a call (default: all).

        Raises FileNotFoundError without a program or tokenizer, ProgramError where a file is damaged,
        ImportError where the tokenizer's package is missing, InputError where the folder holds another kind
        of model or the tokenizer is another model's.
        """
        self.folder = EncoderDecoderFolder(folder, is_text=False)
        self.tokenizer: Tokenizer = open_tokenizer_for(self.folder)
        self.mel = LogMel.stated(read_json(self.folder.path / "preprocessor_config.json"))
        bands, self._columns = self.folder.source_shape
        if (bands, self._columns * self.mel.hop) != (self.mel.bands, self.mel.seconds * self.mel.rate):
            raise damaged(
                "preprocessor_config.json",
                f"its windows have {self.mel.bands} bands in {self.mel.seconds} s, the program's {bands} "
                f"in {self._columns} columns",
            )
        eos, vocabulary = self.folder.eos_ids, self.folder.signature.vocabulary
        self.prompt = SpeechPrompt(self.folder.generation_config, self.folder.start_token, eos, vocabulary)
        self._pool = SessionPool(lambda: SourceSession(self.folder, threads, self.folder.signature.chunk), 1)

    @property
    def languages(self) -> tuple[str, ...]:
        """Codes of the languages that the model knows; empty for a model of one."""
        return tuple(sorted(self.prompt.languages))

    def transcribe(self, sound: Sound, **settings: Any) -> Transcript:
        """The text of a sound. `settings`: those of `segments`.

        Raises what `segments` raises. The next call works.
        """
        hearing = self.segments(sound, **settings)
        segments = tuple(hearing)
        return Transcript(hearing.text.strip(), segments, hearing.language, hearing.duration)

    def segments(
        self,
        sound: Sound,
        *,
        rate: int | None = None,
        language: str | None = None,
        task: str = "transcribe",
        timestamps: bool | None = None,
        max_new_tokens: int | None = None,
        deadline: float | None = None,
        seed: int = 0,
        temperature: float | Sequence[float] | None = None,
        compression_ratio_threshold: float | None = None,
        logprob_threshold: float | None = None,
        no_speech_threshold: float | None = None,
    ) -> Hearing:
        """The segments one by one, as they are written.

        Args:
            sound: the path of a WAV file, or samples; other rates than the model's are resampled, channels
                become their mean.
            rate: frames in a second, of samples.
            language: its code, such as "en"; None: the model finds it in the first window.
            task: "transcribe", or "translate" to English.
            timestamps: segments by the model's times; else one for each window. None: where it knows them.
            max_new_tokens: of a window, at most; None: as many as fit.
            deadline: seconds until the work ends.
            temperature: of the draws; 0 (the default) takes the most likely tokens. Several are tried in turn
                until an answer of a window passes the thresholds; the last one counts. `seed`: of the draws.
            compression_ratio_threshold: an answer whose tokens zlib makes more than so many times smaller
                repeats itself. `logprob_threshold`: one whose tokens have a smaller mean log-probability is
                unlikely. `no_speech_threshold`: an unlikely window is left out where the probability that
                nobody speaks is larger.

            A threshold that is left out is what generation_config.json states, else not asked.

        Raises OSError where the file cannot be read; InputError where it is no WAV file, holds no sound or
        more than four hours, or where the model does not know what is asked for; DeadlineExceeded.
        """
        wave = _wave(sound, rate)
        if wave.seconds > MOST_SECONDS:
            raise InputError(
                "the sound is too long",
                expected=f"at most {MOST_SECONDS} seconds",
                got=f"{wave.seconds:.0f} seconds",
                hint="cut it into parts",
            )
        wants_times = self.prompt.no_timestamps is not None if timestamps is None else timestamps
        if language is not None:
            self.prompt.language_token(language)
        first = None if language is not None or not self.prompt.languages else self.languages[0]
        room = self.folder.max_seq_len - len(self.prompt.tokens(language or first, task, wants_times))
        most = room if max_new_tokens is None else max_new_tokens
        if not isinstance(most, int) or isinstance(most, bool) or not 0 < most <= room:
            raise InputError(
                "the answer does not fit into the cache",
                argument="max_new_tokens",
                expected=f"a number from 1 to {room}",
                got=repr(most)[:100],
            )
        given = (temperature, compression_ratio_threshold, logprob_threshold, no_speech_threshold)
        asked = quality(dict(zip(NAMES, given, strict=True)), self.folder.generation_config)
        SamplingParameters(seed=seed)
        return Hearing(self, wave, Asked(language, task, wants_times, most, deadline, seed, asked))


@dataclass(frozen=True)
class Asked:
    """What a caller asked for, checked."""

    language: str | None
    task: str
    timestamps: bool
    most_tokens: int
    deadline: float | None
    seed: int
    quality: SpeechQuality


class Hearing(Iterator[Segment]):
    """Segments as they come, of `Transcriber.segments`. One thread reads.

    Attributes:
        language: the code; None until it is found. `duration`: seconds of the sound.
        text: what was said so far, as the model spaced it.
    """

    def __init__(self, owner: Transcriber, wave: Wave, asked: Asked) -> None:
        self.language, self.duration, self.text = asked.language, wave.seconds, ""
        self._owner, self._asked = owner, asked
        # Answers that were drawn: each has a seed of its own.
        self._drawn = 0
        self._end = None if asked.deadline is None else time.perf_counter() + asked.deadline
        self._steps = self._windows(mono(wave, owner.mel.rate))

    def __next__(self) -> Segment:
        return next(self._steps)

    def _windows(self, samples: npt.NDArray[np.float32]) -> Iterator[Segment]:
        owner, mel, columns = self._owner, self._owner.mel, self._owner._columns
        # A sound of one window has silence behind it; the last window of a longer one has zeros.
        total = max(columns, len(samples) // mel.hop)
        spectrogram = mel(samples, total)
        heard = -(-len(samples) // mel.hop) if total == columns else total
        session = owner._pool.take([])
        assert isinstance(session, SourceSession)
        try:
            at = 0
            while at < heard:
                window = np.zeros((1, mel.bands, columns), np.float32)
                part = spectrogram[:, at : at + columns]
                window[0, :, : part.shape[1]] = part
                tokens = self._answer(session, window)
                length = min(columns, heard - at)
                if tokens is None:
                    at += length
                    continue
                pieces, step = cut_at_times(tokens, self._first_time)
                for start, end, said in pieces:
                    yield self._segment(at, length, start, end, said)
                # A step of 0 would hear the same window for ever.
                at += step * _COLUMNS if step else length
        finally:
            owner._pool.give(session)

    @property
    def _first_time(self) -> int | None:
        begin = self._owner.prompt.no_timestamps
        return begin + 1 if self._asked.timestamps and begin is not None else None

    def _answer(self, session: SourceSession, window: npt.NDArray[np.float32]) -> list[int] | None:
        """The tokens of a window, without the one that ends them; None where nobody speaks."""
        prompt, asked, eos = self._owner.prompt, self._asked, self._owner.folder.eos_ids
        session.set_source(window)
        silence = 0.0
        is_silence_asked = asked.quality.no_speech is not None and prompt.no_speech is not None
        if is_silence_asked or (self.language is None and prompt.languages):
            logits, _ = session.prefill([prompt.start], self._remaining)
            if self.language is None and prompt.languages:
                self.language = prompt.detected(logits)
            if is_silence_asked:
                silence = probability(logits, prompt.no_speech or 0)
        begin = prompt.tokens(self.language, asked.task, asked.timestamps)
        vocabulary, found = self._owner.folder.signature.vocabulary, [prompt.start]
        for temperature in asked.quality.temperatures:
            chooser = self._written(session, begin, temperature)
            found = chooser.found
            if asked.quality.is_silence(chooser.logprobs, silence):
                return None
            if asked.quality.is_good(found, chooser.logprobs, vocabulary):
                break
        return found[:-1] if found[-1] in eos else found

    def _written(self, session: SourceSession, begin: list[int], temperature: float) -> TokenChooser:
        """An answer at a temperature, with the token that ends it."""
        asked, eos = self._asked, self._owner.folder.eos_ids
        sampling = SamplingParameters(temperature=temperature, seed=asked.seed + self._drawn & 2**64 - 1)
        self._drawn += temperature > 0
        is_weighed = asked.quality.logprob is not None
        chooser = self._owner.prompt.chooser(asked.timestamps, sampling, is_weighed=is_weighed)
        logits, _ = session.prefill(begin, self._remaining)
        while chooser.choose(logits) not in eos and len(chooser.found) < asked.most_tokens:
            logits = session.extend(chooser.found[-1:], self._remaining)
        return chooser

    def _segment(self, at: int, length: int, start: int | None, end: int | None, tokens: Any) -> Segment:
        mel, first = self._owner.mel, self._first_time
        second = mel.rate / mel.hop
        text = self._owner.tokenizer.decode([token for token in tokens if first is None or token < first])
        self.text += text
        begins = (at + (start or 0) * _COLUMNS) / second
        ends = (at + (length if end is None else end * _COLUMNS)) / second
        return Segment(begins, ends, text.strip(), tuple(tokens))

    def _remaining(self) -> float | None:
        if self._end is None:
            return None
        left = self._end - time.perf_counter()
        if left <= 0:
            raise DeadlineExceeded("the time for the transcript is over")
        return left


def _wave(sound: Sound, rate: int | None) -> Wave:
    if not isinstance(sound, np.ndarray):
        if rate is not None:
            raise InputError("a WAV file states its rate", argument="rate")
        return read_wave(sound)
    if sound.ndim not in (1, 2) or sound.size == 0 or sound.dtype.kind != "f" or not np.isfinite(sound).all():
        raise InputError(
            "samples are no sound",
            expected="floats [frames] or [frames, channels], finite",
            got=f"{sound.dtype} {list(sound.shape)}",
        )
    if not isinstance(rate, int) or isinstance(rate, bool) or not 0 < rate <= 768_000:
        raise InputError("samples need their rate", argument="rate", got=repr(rate)[:100])
    return Wave(sound.reshape(len(sound), -1).astype(np.float32), rate)
