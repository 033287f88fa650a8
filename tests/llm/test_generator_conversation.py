"""Conversations: nothing is computed twice, nothing that fails harms, caches travel only where they fit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pteron.errors import InputError, MethodBusy, ProgramError
from pteron.llm import Conversation, Generator
from pteron.llm.cache_session import CacheSession
from pteron.llm.model_folder import ModelFolder
from tests.llm.recipe_folder import CACHE, RecipeFolder

SETTINGS = {"max_new_tokens": 6, "ignore_eos": True}


@pytest.fixture
def chat(generator: Generator) -> Conversation:
    """A conversation with one answer."""
    found = generator.conversation("Be brief.", **SETTINGS)
    found.send("Why?")
    return found


def afresh(generator: Generator, chat: Conversation, question: str) -> str:
    """The answer that comes where nothing was computed before."""
    messages = [*chat.messages, {"role": "user", "content": question}]
    return Generator(generator.folder.path).generate(messages, **SETTINGS).text


def test_answers_are_those_without_a_cache(generator: Generator, chat: Conversation) -> None:
    assert [message["role"] for message in chat.messages] == ["system", "user", "assistant"]
    for question in ("And then?", "How long?"):
        expected = afresh(generator, chat, question)
        before = chat.cached_tokens
        result = chat.send(question)
        assert result.text == expected
        # The last token of an answer is not in the cache, and its text may be cut into other tokens.
        assert result.reused_tokens >= before - SETTINGS["max_new_tokens"]
        assert chat.messages[-1]["content"] == result.text


def test_a_fork_goes_its_own_way(generator: Generator, chat: Conversation) -> None:
    other = chat.fork()
    expected = afresh(generator, chat, "One way")
    assert other.send("Another way").reused_tokens > 0
    assert chat.send("One way").text == expected
    assert len(other.messages) == len(chat.messages) == 5
    assert other.messages[3] != chat.messages[3]


def test_conversations_do_not_mix(generator: Generator) -> None:
    chats = [generator.conversation(f"Number {n}.", **SETTINGS) for n in range(3)]
    expected = [afresh(generator, chat, "Who?") for chat in chats]
    streams = [chat.stream("Who?") for chat in chats]
    for stream in streams:
        next(stream)
    assert [stream.result.text for stream in streams] == expected


def test_save_and_restore(generator: Generator, chat: Conversation, tmp_path: Path) -> None:
    path = tmp_path / "chat.bin"
    chat.save(path)
    restored = Generator(generator.folder.path).restore(path, **SETTINGS)
    assert restored.messages == chat.messages
    assert restored.cached_tokens == chat.cached_tokens
    again, first = restored.send("And then?"), chat.send("And then?")
    assert again.tokens == first.tokens
    assert again.reused_tokens == first.reused_tokens > 0


def test_a_cache_of_another_program_is_refused(
    recipe: RecipeFolder, copied: Path, chat: Conversation, tmp_path: Path
) -> None:
    chat.save(tmp_path / "chat.bin")
    content = bytearray((copied / "model.pte").read_bytes())
    content[-100] ^= 1
    (copied / "model.pte").write_bytes(content)
    with pytest.raises(InputError, match="saved with another program"):
        Generator(copied).restore(tmp_path / "chat.bin")


def test_damaged_files(generator: Generator, chat: Conversation, tmp_path: Path) -> None:
    path = tmp_path / "chat.bin"
    chat.save(path)
    content = path.read_bytes()
    line, _, buffers = content.partition(b"\n")
    header = json.loads(line)

    def changed(**changes: object) -> bytes:
        return json.dumps({**header, **changes}).encode() + b"\n" + buffers

    name = next(iter(header["buffers"]))
    entry = header["buffers"][name]
    damages = [
        b"",
        content[:40],
        content[:-1],
        content + b"x",
        changed(file="other"),
        changed(version=2),
        changed(tokens="abc"),
        changed(tokens=[1.5]),
        changed(tokens=[CACHE * 1000]),
        changed(messages=[5]),
        changed(buffers=[]),
        changed(buffers={}),
        changed(buffers={**header["buffers"], name: {**entry, "shape": [-1]}}),
        changed(buffers={**header["buffers"], name: {**entry, "dtype": "object"}}),
        changed(buffers={**header["buffers"], name: {**entry, "bytes": 1 << 60}}),
        changed(buffers={name: {"dtype": "int8", "shape": [1 << 60], "bytes": 1 << 60}}),
        changed(buffers={key: value for key, value in header["buffers"].items() if key != name})[
            : -entry["bytes"]
        ],
    ]
    for damage in damages:
        path.write_bytes(damage)
        with pytest.raises((ProgramError, InputError), match="conversation"):
            generator.restore(path)
    renamed = {("other" if key == name else key): value for key, value in header["buffers"].items()}
    path.write_bytes(changed(buffers=renamed))
    with pytest.raises(InputError, match="other buffers than the program"):
        generator.restore(path)


def test_errors_and_abandoned_streams_harm_nothing(generator: Generator, chat: Conversation) -> None:
    before = chat.messages
    expected = afresh(generator, chat, "And then?")
    with pytest.raises(InputError, match="does not fit into the cache"):
        chat.send("long " * 200)
    with pytest.raises(InputError, match="a message is a text"):
        chat.send([{"content": "no role"}])
    with pytest.raises(InputError, match="temperature"):
        chat.send("x", temperature=-1)
    with pytest.raises(TypeError, match="frobnicate"):
        chat.send("x", frobnicate=1)
    stream = chat.stream("never read")
    with pytest.raises(MethodBusy, match="already"):
        chat.send("at the same time")
    with pytest.raises(MethodBusy):
        chat.fork()
    stream.close()
    with chat.stream("half read") as stream:
        next(stream)
    assert chat.messages == before
    assert chat.send("And then?").text == expected


def test_a_cancelled_answer_counts_as_said(generator: Generator, chat: Conversation) -> None:
    stream = chat.stream("And then?", max_new_tokens=40)
    next(stream)
    stream.cancel()
    result = stream.result
    assert result.finish_reason == "cancelled"
    assert chat.messages[-1] == {"role": "assistant", "content": result.text}
    expected = afresh(generator, chat, "Go on")
    assert chat.send("Go on").text == expected


def test_a_cache_that_cannot_go_back_is_computed_again(recipe: RecipeFolder) -> None:
    folder = ModelFolder(recipe.folder)
    assert folder.can_rewind
    sessions = []
    for can_rewind in (True, False):
        folder = ModelFolder(recipe.folder)
        folder.constants["can_rewind"] = can_rewind
        sessions.append(CacheSession(folder, 1, 512))
    for tokens, kept in (([5, 6, 7, 8], (0, 0)), ([5, 6, 7, 8, 9, 10], (4, 4)), ([5, 6, 9], (2, 0))):
        rows = []
        for session, expected in zip(sessions, kept, strict=True):
            logits, reused = session.prefill(tokens)
            assert reused == expected
            assert session.tokens == tuple(tokens)
            rows.append(logits.copy())
        np.testing.assert_allclose(rows[0], rows[1], atol=1e-4)
    # A call that fails half way leaves a state that nobody knows: it is thrown away.
    session = sessions[1]
    with pytest.raises(Exception, match="index"):
        session.extend([10_000])
    logits, reused = session.prefill([5, 6, 9, 4])
    assert reused == 0
    np.testing.assert_allclose(logits, sessions[0].prefill([5, 6, 9, 4])[0], atol=1e-4)
