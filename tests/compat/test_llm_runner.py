"""`TextLLMRunner` beside that of the executorch package: signatures, settings, and the text of one file."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from pteron.compat import llm_runner as ours
from pteron.errors import InputError, ProgramError
from pteron.llm import Generator
from pteron.llm.tokenizer import open_tokenizer
from tests.llm.recipe_folder import CACHE, RecipeFolder, small_llama, trained_tokenizer, write_program

pytestmark = [pytest.mark.peer, pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")]

PROMPT = "The files of a program are checked"
QUIET = {"echo": False, "temperature": 0.0}


@pytest.fixture(scope="module")
def theirs() -> Any:
    """The module of the executorch package."""
    return pytest.importorskip("executorch.extension.llm.runner._llm_runner")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> RecipeFolder:
    """A program that states what ExecuTorch's runner asks for, and a tokenizer.

    The model says ASCII alone: that runner raises UnicodeDecodeError where a token is a part of a character.
    """
    folder = tmp_path_factory.mktemp("runner")
    tokenizer = trained_tokenizer()
    model = small_llama(tokenizer.get_vocab_size())
    tokenizer.save(str(folder / "tokenizer.json"))
    read = open_tokenizer(folder, {}).token_bytes()
    silent = [number for number, content in enumerate(read) if not content or not content.isascii()]
    with torch.no_grad():
        model.lm_head.weight[silent] = 0
    stated: dict[str, Any] = {
        "get_max_seq_len": CACHE,
        "get_max_context_len": CACHE,
        "get_vocab_size": tokenizer.get_vocab_size(),
        "get_bos_id": 0,
        "get_eos_ids": [1],
        "use_kv_cache": True,
        "use_sdpa_with_kv_cache": False,
        "enable_dynamic_shape": True,
    }
    write_program(model, folder / "model.pte", **stated)
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))
    return RecipeFolder(folder, model)


def runner_of(module: Any, made: RecipeFolder) -> Any:
    return module.TextLLMRunner(str(made.folder / "model.pte"), str(made.folder / "tokenizer.json"))


def text_of(runner: Any, module: Any, prompt: str = PROMPT, **settings: Any) -> str:
    pieces: list[str] = []
    runner.generate(prompt, module.GenerationConfig(**{**QUIET, **settings}), pieces.append)
    return "".join(pieces)


def stub_signature(stub: str, owner: str, name: str) -> list[tuple[str, bool]]:
    """Arguments of a method in the stub of the package, and whether each has a default."""
    body = stub.split(f"\nclass {owner}:")[1].split("\nclass ")[0]
    found = re.search(rf"def {name}\(([^)]*)\)", body)
    assert found, name
    arguments = re.sub(r"\[[^\[\]]*(\[[^\[\]]*\][^\[\]]*)*\]", "", found[1]).split(",")
    named = [each.strip() for each in arguments if each.strip() not in ("", "self", "*")]
    return [(each.split(":")[0], "=" in each) for each in named]


@pytest.mark.parametrize(
    ("owner", "names"),
    [
        ("GenerationConfig", ("__init__", "resolve_max_new_tokens")),
        ("Stats", ("on_sampling_begin", "on_sampling_end", "reset", "to_json_string")),
        ("TextLLMRunner", ("__init__", "generate", "prefill", "stop", "reset", "get_vocab_size")),
    ],
)
def test_signatures_are_those_of_the_package(theirs: Any, owner: str, names: tuple[str, ...]) -> None:
    stub = Path(theirs.__file__).with_name("_llm_runner.pyi").read_text()
    for name in names:
        ours_is = inspect.signature(getattr(getattr(ours, owner), name)).parameters
        found = [(each, is_.default is not is_.empty) for each, is_ in ours_is.items() if each != "self"]
        assert found == stub_signature(stub, owner, name), name
    public = {name for name in dir(getattr(theirs, owner)) if not name.startswith("_")}
    assert public <= {*dir(getattr(ours, owner)), *getattr(ours, owner).__annotations__}


def test_settings_have_the_same_defaults_and_the_same_most_tokens(theirs: Any) -> None:
    mine, peer = ours.GenerationConfig(), theirs.GenerationConfig()
    for name in ("echo", "max_new_tokens", "warming", "seq_len", "num_bos", "num_eos"):
        assert getattr(mine, name) == getattr(peer, name)
    assert mine.temperature == pytest.approx(peer.temperature)
    for new in (-1, 0, 5, 500):
        for length in (-1, 3, 50, 500):
            given = {"max_new_tokens": new, "seq_len": length}
            pair = (ours.GenerationConfig(**given), theirs.GenerationConfig(**given))
            for context, occupied in ((96, 10), (96, 96), (20, 30)):
                mine_is, peer_is = (each.resolve_max_new_tokens(context, occupied) for each in pair)
                assert mine_is == peer_is, (given, context, occupied)
    with pytest.raises(TypeError):
        ours.GenerationConfig(5)  # type: ignore[misc]


def test_both_runners_give_the_text_of_one_file(theirs: Any, made: RecipeFolder) -> None:
    mine, peer = runner_of(ours, made), runner_of(theirs, made)
    assert mine.get_vocab_size() == made.model.config.vocab_size
    for settings in ({"max_new_tokens": 12}, {"seq_len": 60, "num_bos": 1}, {"max_new_tokens": 3}):
        pair = (text_of(mine, ours, **settings), text_of(peer, theirs, **settings))
        assert pair[0] == pair[1]
        assert pair[0], "a text without a word shows nothing"
    mine.reset()
    peer.reset()
    for runner, module in ((mine, ours), (peer, theirs)):
        runner.prefill(PROMPT, module.GenerationConfig(num_bos=1))
    assert text_of(mine, ours, " and", max_new_tokens=8) == text_of(peer, theirs, " and", max_new_tokens=8)


def test_figures_are_written_by_the_names_of_the_package(theirs: Any, made: RecipeFolder) -> None:
    found: list[dict[str, int]] = []
    counts = []
    for module in (ours, theirs):
        config = module.GenerationConfig(max_new_tokens=6, **QUIET)

        def note(stats: Any) -> None:
            found.append(json.loads(stats.to_json_string()))
            counts.append((stats.num_prompt_tokens, stats.num_generated_tokens))

        runner_of(module, made).generate(PROMPT, config, lambda _: None, note)
    rates = {"prefill_token_per_sec", "decode_token_per_sec"}
    assert found[0].keys() - rates == found[1].keys() - rates
    assert rates >= found[0].keys() - found[1].keys()
    assert counts[0] == counts[1]
    for stats in found:
        order = ("model_load_start_ms", "model_load_end_ms", "inference_start_ms", "prompt_eval_end_ms")
        times = [stats[name] for name in (*order, "first_token_ms", "inference_end_ms")]
        assert times == sorted(times)


def test_the_prompt_comes_first_and_is_printed_without_a_callback(
    made: RecipeFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    pieces: list[str] = []
    config = ours.GenerationConfig(max_new_tokens=4, temperature=0.0)
    runner_of(ours, made).generate(PROMPT, config, pieces.append)
    assert pieces[0] == PROMPT
    assert capsys.readouterr().out == ""
    runner_of(ours, made).generate(PROMPT, config)
    assert capsys.readouterr().out == "".join(pieces)
    config.warming = True
    runner_of(ours, made).generate(PROMPT, config)
    assert capsys.readouterr().out == ""


def test_stop_ends_a_text_and_what_was_said_stays(made: RecipeFolder) -> None:
    runner, pieces = runner_of(ours, made), []

    def take(piece: str) -> None:
        pieces.append(piece)
        if len(pieces) == 3:
            thread = threading.Thread(target=runner.stop)
            thread.start()
            thread.join()

    runner.generate(PROMPT, ours.GenerationConfig(**QUIET), take)
    assert len(pieces) == 3
    again = text_of(runner, ours, "", max_new_tokens=4)
    whole = text_of(runner_of(ours, made), ours, max_new_tokens=20)
    assert whole.startswith("".join(pieces[:2]))
    assert again


def test_errors_are_runtime_errors_and_leave_the_cache(made: RecipeFolder, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"TextLLMRunner: .*none\.json"):
        ours.TextLLMRunner(made.folder / "model.pte", tmp_path / "none.json")
    with pytest.raises(RuntimeError, match="no such folder"):
        ours.TextLLMRunner(tmp_path / "none" / "model.pte", made.folder / "tokenizer.json")
    (tmp_path / "bad.pte").write_bytes(b"no program at all")
    with pytest.raises(ProgramError):
        ours.TextLLMRunner(tmp_path / "bad.pte", made.folder / "tokenizer.json")
    runner = runner_of(ours, made)
    with pytest.raises(InputError, match="does not fit into the cache"):
        text_of(runner, ours, PROMPT * 40)
    with pytest.raises(InputError, match="no room for a text"):
        text_of(runner, ours, seq_len=2)
    assert text_of(runner, ours, max_new_tokens=5) == text_of(runner_of(ours, made), ours, max_new_tokens=5)


def test_tokens_that_the_program_does_not_state_are_the_tokenizers(made: RecipeFolder) -> None:
    generator = Generator(made.folder / "model.pte", tokenizer=made.folder / "tokenizer.json")
    generator.folder.constants.clear()
    assert (generator.eos_ids, generator.bos_id) == ({1}, 0)


def test_the_path_of_the_package_gives_it_without_torch(made: RecipeFolder) -> None:
    script = (
        "import sys\n"
        "from pteron.compat.executorch.extension.llm.runner import GenerationConfig, TextLLMRunner\n"
        f"folder = {str(made.folder)!r}\n"
        "runner = TextLLMRunner(folder + '/model.pte', folder + '/tokenizer.json')\n"
        "runner.generate('The files', GenerationConfig(max_new_tokens=4, temperature=0.0, echo=False))\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == text_of(runner_of(ours, made), ours, "The files", max_new_tokens=4)
