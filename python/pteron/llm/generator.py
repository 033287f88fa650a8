"""`Generator`: a folder with a language model, text in and text out, without torch and transformers."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from pteron.errors import InputError
from pteron.llm.cache_session import CacheSession, SessionPool
from pteron.llm.chat_template import ChatTemplate, Message, open_template, special_texts
from pteron.llm.conversation import Conversation, restore
from pteron.llm.generation_config import GenerationConfig
from pteron.llm.generation_result import GenerationResult
from pteron.llm.grammar import Grammars, GrammarState
from pteron.llm.model_folder import ModelFolder, damaged, read_json
from pteron.llm.pictures import PromptTokens, has_images, ids_of, without_pictures
from pteron.llm.shared_cache import METHOD, SharedCache
from pteron.llm.side_by_side import available_threads, generate_all
from pteron.llm.speculation import DraftModel, PromptLookup, Proposer
from pteron.llm.token_stream import Plan, TokenStream
from pteron.llm.tokenizer import Tokenizer, open_tokenizer_for
from pteron.llm.vision import Vision, VisionSession, takes_images

#: A text, its tokens, or the messages of a conversation.
Prompt = str | Sequence[int] | Sequence[Message]


class Generator:
    """Generates text with the language model of a folder.

    The weights are there once, whatever number of threads generate at the same time: every generation that
    runs has a cache of its own.

    Attributes:
        folder: the program and what its files state. `tokenizer`, `template`: of the folder.
        vision: how the model takes images; None where it takes none.
        config: settings of calls that say nothing else.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        threads: int | None = None,
        prefill_chunk: int = 512,
        idle_caches: int = 2,
        config: GenerationConfig | None = None,
        draft: str | os.PathLike[str] | None = None,
        tokenizer: str | os.PathLike[str] | None = None,
        data: Sequence[str | os.PathLike[str]] = (),
    ) -> None:
        """Opens a folder: `model.pte` beside the files of a tokenizer and of a configuration. Or a program
        alone, by its path, with its `data` files: what it needs to know is in its constant methods, and
        `tokenizer` is needed.

        `tokenizer`: a file of one, or a folder with one and its tokenizer_config.json and chat template;
        None: that of the folder.

        `threads`: of a call (default: all). `prefill_chunk`: tokens of a prompt in one call at most, between
        two chances to stop. `idle_caches`: caches that are kept for prompts with the same beginning.

        `draft`: the folder of a smaller model with the same tokenizer, which guesses tokens.

        Raises FileNotFoundError without a program or tokenizer, ProgramError where a file is damaged,
        ImportError where the tokenizer's package is missing, InputError where the tokenizer is another
        model's.
        """
        self.folder = ModelFolder(folder, data)
        if "encode" in self.folder.program.methods:
            raise InputError(
                "the folder holds an encoder-decoder",
                hint="open it with pteron.llm.Text2TextGenerator, or pteron.llm.Transcriber for speech",
            )
        if self.folder.signature.batch != 1:
            raise damaged("model.pte", f"it takes {self.folder.signature.batch} sequences in a call, not one")
        place = self.folder.path if tokenizer is None else Path(tokenizer)
        beside, stated = place.parent if place.is_file() else place, self.folder.tokenizer_config
        if tokenizer is not None:
            stated = read_json(beside / "tokenizer_config.json")
        self.tokenizer: Tokenizer = open_tokenizer_for(self.folder, place, stated)
        self.template: ChatTemplate | None = open_template(beside, stated)
        self._special = special_texts(stated)
        self.vision = Vision(self.folder, self.tokenizer) if takes_images(self.folder) else None
        self.config = config or GenerationConfig()
        self._threads, self._chunk, self._idle_caches = threads, prefill_chunk, idle_caches
        self._pool = SessionPool(self.new_session, idle_caches)
        # Of texts side by side, by the threads of a session.
        self._side_pools: dict[int, SessionPool] = {}
        self._drafts: SessionPool | None = None
        self._draft: Generator | None = None
        if draft is not None:
            self._draft = Generator(draft, threads=threads, prefill_chunk=prefill_chunk)
            self._check_draft(self._draft)
            self._drafts = SessionPool(self._draft.new_session, idle_caches)

    @property
    def max_seq_len(self) -> int:
        """Tokens of prompt and text together."""
        return self.folder.max_seq_len

    @cached_property
    def eos_ids(self) -> frozenset[int]:
        """Tokens that end a text: as the program or the configurations state, else the tokenizer's."""
        return self.folder.eos_ids or frozenset(self._token_of("eos_token"))

    @cached_property
    def bos_id(self) -> int | None:
        """The token that begins a text, from the same places; None where none is stated."""
        found = self.folder.bos_id
        return found if found is not None else next(iter(self._token_of("bos_token")), None)

    def generate(
        self, prompt: Prompt, *, max_new_tokens: int | None = None, **settings: Any
    ) -> GenerationResult:
        """The text that follows a prompt. `settings`: those of `GenerationConfig`, by name.

        Messages become a prompt by the chat template; the settings `tools` and `template_variables` reach it.

        Raises InputError where the prompt does not fit into the cache, has tokens that the model does not
        know, or
            a setting is out of range; what the program raises. The next call works.
        """
        return self.stream(prompt, max_new_tokens=max_new_tokens, **settings).result

    def generate_batch(
        self,
        prompts: Sequence[Prompt],
        *,
        parallel: int | None = None,
        max_new_tokens: int | None = None,
        **settings: Any,
    ) -> list[GenerationResult]:
        """The texts behind several prompts of any lengths, each as `generate` gives it alone.

        `parallel`: texts at a time; a text that ends makes room for the next prompt. Where the program has a
        method `forward_ragged`, they share its cache, and a call computes the next tokens of all (default: 8
        texts, fewer where the cache holds fewer). Else they have caches of their own and divide the threads
        (default: as many as threads). With a `seed` all texts have it.

        Raises what `generate` raises: for prompts that cannot be used before anything is computed, and where
        one text fails, when the others have been cancelled.
        """
        changes = {"max_new_tokens": max_new_tokens, **settings}
        if max_new_tokens is None:
            del changes["max_new_tokens"]
        tools, variables = changes.pop("tools", None), changes.pop("template_variables", None)
        self.config.with_changes(changes)
        tokens = [self.tokens_of(prompt, tools, variables) for prompt in prompts]
        if parallel is not None and (isinstance(parallel, bool) or parallel < 1):
            raise InputError("texts at a time", argument="parallel", expected="from 1 up", got=repr(parallel))
        if self._shared is not None:
            return generate_all(partial(self._join, changes), tokens, max(1, min(parallel or 8, len(tokens))))
        threads = self._threads or available_threads()
        at_once = max(1, min(parallel or threads, len(tokens)))
        pool = self._side_pool(max(1, threads // at_once))

        def begin(prompt: list[int]) -> TokenStream:
            session = pool.take(prompt)
            return self.stream_in(session, prompt, changes, lambda _: pool.give(session))

        return generate_all(begin, tokens, at_once)

    def stream(self, prompt: Prompt, *, max_new_tokens: int | None = None, **settings: Any) -> TokenStream:
        """The same text piece by piece, as an iterator or asynchronous iterator; `cancel` ends it."""
        changes = {"max_new_tokens": max_new_tokens, **settings}
        if max_new_tokens is None:
            del changes["max_new_tokens"]
        tokens = self.tokens_of(prompt, changes.pop("tools", None), changes.pop("template_variables", None))
        session = self._pool.take(tokens)

        def done(_: GenerationResult | None) -> None:
            self._pool.give(session)

        return self.stream_in(session, tokens, changes, done)

    async def generate_async(self, prompt: Prompt, **settings: Any) -> GenerationResult:
        """`generate` for asynchronous code: the event loop goes on, and a cancelled task stops the model."""
        stream = self.stream(prompt, **settings)
        async for _ in stream:
            pass
        return stream.result

    def stream_async(self, prompt: Prompt, **settings: Any) -> AsyncIterator[str]:
        """`stream` for `async for`."""
        return aiter(self.stream(prompt, **settings))

    def conversation(self, messages: str | Sequence[Message] = (), **settings: Any) -> Conversation:
        """A conversation with a cache of its own, from these messages on; a text is what the system says.

        `settings`: of all its answers. InputError where the folder has no chat template.
        """
        if isinstance(messages, str):
            messages = [{"role": "system", "content": messages}]
        if self.template is None:
            self.render([])
        return Conversation(self, self.new_session(), messages, settings)

    def restore(self, path: str | os.PathLike[str], **settings: Any) -> Conversation:
        """The conversation that `Conversation.save` wrote: nothing of it is computed again.

        Raises ProgramError where the file is damaged, InputError where it is another program's.
        """
        return restore(self, path, settings)

    def tokens_of(
        self,
        prompt: Prompt,
        tools: Sequence[Any] | None = None,
        template_variables: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """The tokens of a prompt, checked."""
        if isinstance(prompt, str):
            tokens = self.tokenizer.encode(prompt)
        elif prompt and isinstance(prompt[0], Mapping):
            variables = {"tools": tools, **(template_variables or {})}
            tokens = self._tokens_of_messages(prompt, variables)  # type: ignore[arg-type]
        elif isinstance(prompt, PromptTokens):
            tokens = prompt
        else:
            tokens = list(prompt)  # type: ignore[arg-type]
        if not tokens and self.bos_id is not None:
            tokens = [self.bos_id]
        self._check(tokens)
        return tokens

    def render(self, messages: Sequence[Message], **variables: Any) -> str:
        """The prompt of messages, by the chat template. InputError where the folder has none."""
        if self.template is None:
            raise InputError(
                "the folder has no chat template",
                hint="give the prompt as text, or put the model's chat_template.jinja into the folder",
            )
        return self.template.render(messages, **variables)

    def new_session(self, threads: int | None = None) -> CacheSession:
        """A cache of its own. `threads`: of its calls; None: those of the generator."""
        chosen = threads or self._threads
        if self.vision is not None:
            return VisionSession(self.folder, self.vision, chosen, self._chunk)
        return CacheSession(self.folder, chosen, self._chunk)

    def stream_in(
        self,
        session: CacheSession,
        tokens: list[int],
        settings: Mapping[str, Any],
        done: Callable[[GenerationResult | None], None],
    ) -> TokenStream:
        """The text behind tokens, in the cache that the caller chose. `done` is called once, at the end, with
        the result, or with None where an error ended the text.
        """
        lent: list[CacheSession] = []

        def give_back(result: GenerationResult | None) -> None:
            for one in lent:
                assert self._drafts is not None
                self._drafts.give(one)
            done(result)

        try:
            config = self.config.with_changes(settings)
            if self._drafts is not None and config.num_assistant_tokens > 0:
                lent.append(self._drafts.take(tokens))
            plan = self._plan(tokens, config, lent[0] if lent else None)
            return TokenStream(session, plan, give_back)
        except BaseException:
            give_back(None)
            raise

    def _tokens_of_messages(self, messages: Sequence[Message], variables: Mapping[str, Any]) -> list[int]:
        if self.vision is not None:
            plain, pictures = without_pictures(messages)
            return self.vision.tokens(self.render(plain, **variables), pictures, self.tokenizer)
        if has_images(messages):
            raise InputError(
                "the model takes no images",
                hint="export one that does: docs/how-to/export-language-models.md names the families",
            )
        return self.tokenizer.encode(self.render(messages, **variables), add_special_tokens=False)

    @cached_property
    def _shared(self) -> SharedCache | None:
        # Rows of images do not come by this method.
        if METHOD not in self.folder.program.methods or self.vision is not None:
            return None
        return SharedCache(self.folder, self._threads, self._chunk)

    def _join(self, changes: Mapping[str, Any], prompt: list[int]) -> TokenStream:
        """The text behind a prompt, in the cache that several texts share."""
        shared, config = self._shared, self.config.with_changes(changes)
        assert shared is not None
        most = config.new_tokens(self.folder.generation_config, self.max_seq_len - len(prompt) + 1)
        session = shared.join(len(prompt) + most)
        return self.stream_in(session, prompt, changes, lambda _: shared.leave(session))

    def _side_pool(self, threads: int) -> SessionPool:
        if threads not in self._side_pools:
            new = partial(self.new_session, threads)
            self._side_pools[threads] = SessionPool(new, max(self._idle_caches, 1))
        return self._side_pools[threads]

    def _plan(self, tokens: list[int], config: GenerationConfig, draft: CacheSession | None) -> Plan:
        stated = self.folder.generation_config
        # The last token of a text is never computed, so that one more than the cache takes fits.
        room = self.max_seq_len - len(tokens) + 1
        eos = frozenset() if config.ignore_eos else self.eos_ids
        return Plan(
            prompt=tokens,
            sampling=config.sampling(stated),
            most_tokens=config.new_tokens(stated, room),
            fewest_tokens=config.min_new_tokens,
            eos=eos | frozenset(config.stop_token_ids),
            stops=config.stops,
            logprobs=config.logprobs,
            skip_special_tokens=config.skip_special_tokens,
            deadline=config.deadline,
            tokenizer=self.tokenizer,
            proposer=self._proposer(config, draft),
            most_in_call=self.folder.signature.chunk,
            grammar=self._grammar(config),
        )

    def _proposer(self, config: GenerationConfig, draft: CacheSession | None) -> Proposer | None:
        if draft is not None:
            return DraftModel(draft, config.num_assistant_tokens, self.folder.signature.vocabulary)
        if config.prompt_lookup_num_tokens <= 0:
            return None
        self._check_positions()
        return PromptLookup(config.prompt_lookup_num_tokens)

    def _grammar(self, config: GenerationConfig) -> GrammarState | None:
        if config.json_schema is None and config.grammar is None:
            return None
        if config.ignore_eos or (config.json_schema is not None and config.grammar is not None):
            raise InputError("a text follows one schema or one grammar, to its end")
        if config.json_schema is not None:
            return self._grammars.of_schema(config.json_schema)
        return self._grammars.of_lark(str(config.grammar))

    @cached_property
    def _grammars(self) -> Grammars:
        known = [token for token in self.eos_ids if token < self.tokenizer.size]
        if not known:
            raise InputError("the model has no token that ends a text, so a grammar has no end")
        return Grammars(self.tokenizer, min(known), self.folder.signature.vocabulary)

    def _token_of(self, name: str) -> list[int]:
        found = self.tokenizer.special.get(self._special.get(name, ""))
        return [] if found is None else [found]

    def _check_positions(self) -> None:
        if self.folder.all_positions_method is None or not self.folder.can_rewind:
            raise InputError(
                "the program cannot check several tokens in a call",
                expected="logits of all positions, and a cache that can go back",
                hint="export the model with a method forward_all, or generate without guesses",
            )

    def _check_draft(self, draft: Generator) -> None:
        self._check_positions()
        ours, theirs = self.tokenizer, draft.tokenizer
        if ours.special != theirs.special or ours.token_bytes() != theirs.token_bytes():
            raise InputError("the draft has another tokenizer than the model")
        if not draft.folder.can_rewind:
            raise InputError("the draft has a cache that cannot go back")

    def _check(self, tokens: list[int]) -> None:
        if not tokens:
            raise InputError("the prompt has no tokens", expected="at least one token")
        if len(tokens) > self.max_seq_len:
            raise InputError(
                "the prompt does not fit into the cache",
                expected=f"at most {self.max_seq_len} tokens",
                got=f"{len(tokens)} tokens",
                hint="shorten the prompt, or export the model with a larger max_seq_len",
            )
        vocabulary = self.folder.signature.vocabulary
        for token in ids_of(tokens):
            if not isinstance(token, int) or not 0 <= token < vocabulary:
                raise InputError(
                    "the prompt has a token that the model does not know",
                    expected=f"numbers from 0 to {vocabulary - 1}",
                    got=repr(token)[:100],
                )
