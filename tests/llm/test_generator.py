"""`Generator` against transformers' `generate`, and what a caller can ask for."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
import torch

from pteron.errors import InputError
from pteron.llm import Generator
from tests.llm.recipe_folder import CACHE, RecipeFolder

PROMPT = "Every step lands by itself"


def transformers_text(recipe: RecipeFolder, tokens: list[int], count: int, **settings: Any) -> list[int]:
    """The new tokens of transformers' own loop, greedy."""
    with torch.no_grad():
        found = recipe.model.generate(
            torch.tensor([tokens]),
            attention_mask=torch.ones(1, len(tokens), dtype=torch.long),
            max_new_tokens=count,
            do_sample=False,
            pad_token_id=1,
            cache_implementation="dynamic",
            **settings,
        )
    return [int(token) for token in found[0, len(tokens) :]]


@pytest.mark.parametrize("settings", [{}, {"repetition_penalty": 1.3}])
@pytest.mark.parametrize("chunk", [512, 4, 1])
def test_greedy_is_that_of_transformers(recipe: RecipeFolder, chunk: int, settings: dict[str, Any]) -> None:
    generator = Generator(recipe.folder, threads=1, prefill_chunk=chunk)
    tokens = generator.tokenizer.encode(PROMPT)
    assert tokens[0] == 0
    assert len(tokens) > 8
    result = generator.generate(PROMPT, max_new_tokens=40, **settings)
    assert list(result.tokens) == transformers_text(recipe, tokens, 40, **settings)
    assert len(set(result.tokens)) > 10, "a text of one token proves nothing"
    assert result.prompt_tokens == len(tokens)
    assert result.finish_reason in ("length", "stop")


def test_pieces_are_the_text_and_whole_characters(generator: Generator) -> None:
    stream = generator.stream(PROMPT, max_new_tokens=60, seed=5, temperature=1.5)
    pieces = list(stream)
    assert len(pieces) > 3
    assert all(pieces)
    result = stream.result
    assert "".join(pieces) == result.text
    without_end = [token for token in result.tokens if token != 1]
    assert result.text == generator.tokenizer.decode(without_end)


def test_a_seed_gives_one_text(recipe: RecipeFolder) -> None:
    settings: dict[str, Any] = {"max_new_tokens": 40, "temperature": 1.2, "top_p": 0.95, "top_k": 100}
    texts = {
        Generator(recipe.folder, threads=threads).generate(PROMPT, seed=11, **settings).text
        for threads in (1, 2)
    }
    assert len(texts) == 1
    generator = Generator(recipe.folder)
    assert generator.generate(PROMPT, seed=12, **settings).text not in texts
    unseeded = generator.generate(PROMPT, do_sample=True, **settings)
    assert generator.generate(PROMPT, seed=unseeded.seed, **settings).tokens == unseeded.tokens


def test_stop_strings_end_the_text_and_are_not_in_it(generator: Generator) -> None:
    whole = generator.generate(PROMPT, max_new_tokens=40).text
    stop = whole[len(whole) // 2 : len(whole) // 2 + 3]
    stream = generator.stream(PROMPT, max_new_tokens=40, stop_strings=[stop, "never to be found"])
    pieces = list(stream)
    result = stream.result
    assert result.text == whole[: whole.index(stop)] == "".join(pieces)
    assert (result.finish_reason, result.stop) == ("stop", stop)


def test_tokens_end_the_text(generator: Generator) -> None:
    tokens = generator.generate(PROMPT, max_new_tokens=20).tokens
    end = tokens[10]
    first = tokens.index(end)
    result = generator.generate(PROMPT, max_new_tokens=20, stop_token_ids=[end])
    assert result.tokens == tokens[: first + 1]
    assert (result.finish_reason, result.stop) == ("stop", end)
    assert result.text == generator.tokenizer.decode(tokens[:first])
    later = generator.generate(PROMPT, max_new_tokens=20, stop_token_ids=[end], min_new_tokens=first + 3)
    assert len(later.tokens) > first + 1
    assert end not in later.tokens[: first + 3]


def test_log_probabilities_are_those_of_the_model(recipe: RecipeFolder, generator: Generator) -> None:
    result = generator.generate(PROMPT, max_new_tokens=8, logprobs=3)
    assert result.logprobs is not None
    tokens = generator.tokenizer.encode(PROMPT)
    with torch.no_grad():
        logits = recipe.model(torch.tensor([[*tokens, *result.tokens]])).logits[0]
    expected = torch.log_softmax(logits.double(), -1)
    for place, found in enumerate(result.logprobs):
        row = expected[len(tokens) - 1 + place]
        assert found.token == result.tokens[place]
        assert found.logprob == pytest.approx(float(row[found.token]), abs=1e-4)
        values, best = row.topk(3)
        assert [token for token, _ in found.top] == best.tolist()
        assert [value for _, value in found.top] == pytest.approx(values.tolist(), abs=1e-4)


def test_the_cache_ends_the_text(generator: Generator) -> None:
    result = generator.generate(PROMPT, max_new_tokens=10_000, ignore_eos=True)
    assert result.finish_reason == "length"
    assert result.prompt_tokens + len(result.tokens) == CACHE + 1
    longest = [5] * CACHE
    assert len(generator.generate(longest, max_new_tokens=5).tokens) == 1


def test_cancelling_takes_less_than_50_ms_and_harms_nothing(generator: Generator) -> None:
    expected = generator.generate(PROMPT, max_new_tokens=30).text
    stream = generator.stream(PROMPT, max_new_tokens=80, ignore_eos=True)
    next(stream)
    stream.cancel()
    begin = time.perf_counter()
    result = stream.result
    assert time.perf_counter() - begin < 0.05
    assert result.finish_reason == "cancelled"
    assert len(result.tokens) < 10
    assert generator.generate(PROMPT, max_new_tokens=30).text == expected


def test_cancelling_from_another_thread(generator: Generator) -> None:
    stream = generator.stream(PROMPT, max_new_tokens=80, ignore_eos=True)
    next(stream)
    thread = threading.Thread(target=stream.cancel)
    thread.start()
    thread.join()
    assert stream.result.finish_reason == "cancelled"


def test_a_deadline_ends_the_text(generator: Generator) -> None:
    result = generator.generate(PROMPT, max_new_tokens=80, deadline=1e-9)
    assert (result.finish_reason, result.tokens) == ("deadline", ())


def test_asynchronous_code_reads_and_cancels(generator: Generator) -> None:
    async def read() -> str:
        return "".join([piece async for piece in generator.stream_async(PROMPT, max_new_tokens=12)])

    async def several() -> list[str]:
        return await asyncio.gather(read(), read())

    async def stop_early() -> None:
        stream = generator.stream(PROMPT, max_new_tokens=80, ignore_eos=True)
        async for _ in stream:
            break

    expected = generator.generate(PROMPT, max_new_tokens=12).text
    assert asyncio.run(several()) == [expected] * 2
    asyncio.run(stop_early())
    assert asyncio.run(generator.generate_async(PROMPT, max_new_tokens=12)).text == expected


def test_a_beginning_in_a_cache_is_not_computed_again(generator: Generator) -> None:
    first = generator.generate(PROMPT, max_new_tokens=5)
    assert first.reused_tokens == 0
    again = generator.generate(PROMPT, max_new_tokens=5)
    assert again.reused_tokens == first.prompt_tokens - 1
    assert again.tokens == first.tokens
    longer = generator.generate(PROMPT + first.text + " and more", max_new_tokens=5)
    assert longer.reused_tokens >= first.prompt_tokens - 1
    fresh = Generator(generator.folder.path).generate(PROMPT + first.text + " and more", max_new_tokens=5)
    assert longer.tokens == fresh.tokens


def test_threads_share_the_weights_and_not_the_cache(generator: Generator) -> None:
    prompts = [f"{PROMPT} {n}" for n in range(4)]
    expected = [Generator(generator.folder.path).generate(p, max_new_tokens=15).text for p in prompts]
    streams = [generator.stream(prompt, max_new_tokens=15) for prompt in prompts]
    # Alternately, so that all four are under way at the same time.
    texts = [""] * 4
    waiting = list(range(4))
    while waiting:
        for n in list(waiting):
            piece = next(streams[n], None)
            if piece is None:
                waiting.remove(n)
            else:
                texts[n] += piece
    assert texts == expected


def test_prompt_lookup_gives_the_same_text(generator: Generator) -> None:
    prompt = "land early and often, land early and often, land early"
    plain = generator.generate(prompt, max_new_tokens=40, ignore_eos=True)
    fast = generator.generate(prompt, max_new_tokens=40, ignore_eos=True, prompt_lookup_num_tokens=4)
    assert fast.tokens == plain.tokens
    assert fast.proposed_tokens > 0
    drawn = {"max_new_tokens": 40, "seed": 3, "temperature": 0.7, "ignore_eos": True}
    assert (
        generator.generate(prompt, prompt_lookup_num_tokens=4, **drawn).tokens
        == generator.generate(prompt, **drawn).tokens
    )


@pytest.mark.parametrize(
    ("prompt", "settings", "text"),
    [
        ([5] * (CACHE + 1), {}, f"at most {CACHE} tokens"),
        ([], {}, None),
        ([-1], {}, "numbers from 0 to 511"),
        ([512], {}, "numbers from 0 to 511"),
        (["a"], {}, "numbers from 0 to 511"),
        (PROMPT, {"max_new_tokens": 0}, "at least one new token"),
        (PROMPT, {"temperature": -1.0}, "temperature"),
        (PROMPT, {"top_p": 1.5}, "top_p"),
        (PROMPT, {"top_k": float("inf")}, "top_k"),
        (PROMPT, {"seed": "1"}, "seed"),
    ],
)
def test_mistakes_are_named_and_harm_nothing(
    generator: Generator, prompt: Any, settings: dict[str, Any], text: str | None
) -> None:
    expected = generator.generate(PROMPT, max_new_tokens=5).tokens
    if text is None:
        # The token that begins a text stands for an empty prompt.
        assert generator.generate(prompt, max_new_tokens=1).prompt_tokens == 1
    else:
        with pytest.raises(InputError, match=text):
            generator.generate(prompt, **settings)
    assert generator.generate(PROMPT, max_new_tokens=5).tokens == expected
    with pytest.raises(TypeError, match="'frobnicate'"):
        generator.generate(PROMPT, frobnicate=1)


def test_neither_torch_nor_transformers_is_imported(recipe: RecipeFolder) -> None:
    code = (
        "import sys, pteron.llm\n"
        "assert not {'tokenizers', 'jinja2', 'torch'} & set(sys.modules)\n"
        "generator = pteron.llm.Generator(sys.argv[1])\n"
        "assert generator.generate([{'role': 'user', 'content': 'hi'}], max_new_tokens=4).tokens\n"
        "assert not {'transformers', 'torch', 'pteron.exir'} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(recipe.folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
