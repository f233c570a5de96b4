"""The methods of LLM that compute prefixes in advance, save them in files, and begin sessions."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pyggml._core.log import logger
from pyggml.chat.request import ChatModel, Messages, Tools, chat_request
from pyggml.chat.sessions.session import Session, SessionModel
from pyggml.errors import (
    EngineError,
    InvalidParameterError,
    RequestTimeout,
    SavedStateError,
    SavedStateNotFoundError,
)
from pyggml.generation.param_merging import merge
from pyggml.generation.pending_request import Prompt, PromptRequest, TokenIds, is_message, prompt_ids
from pyggml.generation.saved_state import SavedState, read_state, write_state
from pyggml.generation.stream import Stream
from pyggml.options.adapter_choice import AdapterChoice
from pyggml.options.sampling import SamplingParams
from pyggml.types import Slot

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from pyggml._keywords import ChatKeywords

T = TypeVar("T")

# Two texts that a user may write next: the prompts that they lead to have the same tokens up to them.
_NEXT_TEXTS = ("0", "x")
# Roles after which it is the user's turn.
_BEFORE_USER = ("system", "developer", "assistant")


class SessionMethods:
    """The methods of :class:`pyggml.LLM` for prefixes of the KV cache that are known in advance, and for sessions."""

    def warm(self, prompt: Prompt | Messages, tools: Tools | None = None, **options: Unpack[ChatKeywords]) -> int:
        """Compute a prefix of later prompts into the prefix cache, without generating.

        Waits without the GIL. The prefix stays until its cells are needed for others, least recently used first.

        Args:
            prompt: text, token ids or messages. If the next message would be the user's, as after a system message,
                the prefix ends before it; otherwise it is the whole prompt.
            tools: as for :meth:`chat`, with messages.
            **options: as for :meth:`chat`, as far as they change the prompt; ``cache_salt`` and ``timeout_s``.

        Returns:
            The number of tokens of the prefix.

        Raises:
            InvalidParameterError: the model has no prefix cache.
            RequestTimeout: ``timeout_s`` passed before the end.
            InferError: as :meth:`generate` and :meth:`chat`.
        """
        llm = cast("ChatModel", self)
        ids, params = _prefix(llm, prompt, tools, options)
        return _compute(llm, ids, params)

    async def awarm(
        self, prompt: Prompt | Messages, tools: Tools | None = None, **options: Unpack[ChatKeywords]
    ) -> int:
        """As :meth:`warm`, for coroutines.

        Args:
            prompt: as for :meth:`warm`.
            tools: as for :meth:`warm`.
            **options: as for :meth:`warm`.
        """
        return await _in_thread(lambda: self.warm(prompt, tools, **options))

    def save(
        self,
        prompt: Prompt | Messages,
        path: str | os.PathLike[str],
        tools: Tools | None = None,
        **options: Unpack[ChatKeywords],
    ) -> int:
        """Save the KV cache of a prefix to a file, from which :meth:`restore` brings it back, after a restart too.

        What is not cached is computed first. Waits without the GIL. The cells are those of the model without adapters,
        so requests with adapters could not use them.

        Args:
            prompt: as for :meth:`warm`. After a completion, its prompt and its ``token_ids`` need one token computed.
            path: the file to write, whole or not at all; an existing one is replaced.
            tools: as for :meth:`warm`.
            **options: as for :meth:`warm`. ``adapter={}`` if requests use adapters by default.

        Returns:
            The number of tokens of the prefix.

        Raises:
            InvalidParameterError: the path is not that of a file, the options name adapters, or the model has no
                prefix cache.
            DiskFullError: the file does not fit.
            InferError: as :meth:`warm`.
        """
        llm = cast("ChatModel", self)
        _require_prefix_cache(llm)
        ids, params = _prefix(llm, prompt, tools, options)
        if adapters := _adapters_of(llm, params):
            raise InvalidParameterError(
                f"a file cannot hold the KV cells of a model with adapters ({', '.join(adapters)}): pass adapter={{}} "
                "to save those without"
            )
        return _save(llm, path, ids, params, None)

    async def asave(
        self,
        prompt: Prompt | Messages,
        path: str | os.PathLike[str],
        tools: Tools | None = None,
        **options: Unpack[ChatKeywords],
    ) -> int:
        """As :meth:`save`, for coroutines.

        Args:
            prompt: as for :meth:`save`.
            path: as for :meth:`save`.
            tools: as for :meth:`save`.
            **options: as for :meth:`save`.
        """
        return await _in_thread(lambda: self.save(prompt, path, tools, **options))

    def restore(self, path: str | os.PathLike[str], *, cache_salt: str | None = None) -> int:
        """Bring a saved prefix into the prefix cache, for requests that begin with its tokens.

        Their results have the same bits as if it had been computed.

        Args:
            path: a file of :meth:`save` or of :meth:`Session.save <pyggml.Session.save>`.
            cache_salt: the ``cache_salt`` of the requests that may use it.

        Returns:
            The number of tokens of the prefix.

        Raises:
            SavedStateNotFoundError: there is no such file.
            SavedStateError: it is damaged, or another model, version or setting saved it, or it is longer than the
                context.
            InvalidParameterError: the model has no prefix cache.
        """
        return _restore(cast("ChatModel", self), read_state(path), path, cache_salt)

    async def arestore(self, path: str | os.PathLike[str], *, cache_salt: str | None = None) -> int:
        """As :meth:`restore`, for coroutines.

        Args:
            path: as for :meth:`restore`.
            cache_salt: as for :meth:`restore`.
        """
        return await _in_thread(lambda: self.restore(path, cache_salt=cache_salt))

    def session(
        self,
        messages: Messages | str | os.PathLike[str] = (),
        tools: Tools | None = None,
        params: SamplingParams | None = None,
        **options: Unpack[ChatKeywords],
    ) -> Session:
        """Begin a conversation that keeps its messages, or continue a saved one.

        A saved session continues with the bits that it would have had without the break. If its KV cells cannot be
        used, because another model, version or setting saved them, its first turn computes them again, and a warning
        is logged.

        Args:
            messages: the messages so far, such as the system's; (): none. Or the path of a file of
                :meth:`Session.save <pyggml.Session.save>`.
            tools: tools of every turn, as for :meth:`chat`. Pass Python functions again with a path: a file has only
                their descriptions.
            params: sampling parameters of every turn, as for :meth:`chat`.
            **options: other parameters of every turn, as for :meth:`chat`. With a path, they replace those of the file.

        Raises:
            SavedStateNotFoundError: there is no such file.
            SavedStateError: it is damaged, or holds no session.
            InvalidParameterError: messages or options are invalid.
        """
        llm = cast("SessionModel", self)
        own = {"tools": tools, "params": params}
        given: dict[str, Any] = {**{name: value for name, value in own.items() if value is not None}, **options}
        if not isinstance(messages, (str, os.PathLike)):
            return Session(llm, messages, given)
        try:
            state = read_state(messages)
        except SavedStateNotFoundError as error:
            raise SavedStateNotFoundError(
                f'{error}; a conversation begins with messages: session([{{"role": "system", "content": "..."}}])'
            ) from None
        session = Session._of_state(llm, state, messages, given)
        if state.prefix:
            _restore_session(llm, state, messages, session._cache_salt)
        return session

    def slots(self) -> list[Slot]:
        """Return the slots of the KV cache, each with one running request or the cached tokens of an earlier one.

        Never waits for a forward pass.
        """
        return cast("ChatModel", self)._engine.slots()

    def slot_tokens(
        self, index: int, *, cache_salt: str | None = None, adapter: AdapterChoice | None = None
    ) -> list[int]:
        """Return the tokens that an idle slot has cached, such as for :meth:`save`.

        Args:
            index: index of the slot in :meth:`slots`.
            cache_salt: the ``cache_salt`` of the requests that may use them.
            adapter: the adapters of these requests, as in SamplingParams: None means the defaults.

        Returns:
            Their ids; [] if there are none, or none for requests with this salt and these adapters.

        Raises:
            InvalidParameterError: there is no such slot or adapter, or a request is running in the slot.
        """
        return cast("ChatModel", self)._engine.slot_tokens(index, cache_salt=cache_salt, adapter=adapter)

    def erase_slot(self, index: int, *, cache_salt: str | None = None, adapter: AdapterChoice | None = None) -> int:
        """Evict the tokens that an idle slot has cached, before the next request starts; :meth:`reset` evicts all.

        Args:
            index: as for :meth:`slot_tokens`.
            cache_salt: as for :meth:`slot_tokens`.
            adapter: as for :meth:`slot_tokens`.

        Returns:
            The number of tokens that were cached.

        Raises:
            InvalidParameterError: as :meth:`slot_tokens`.
        """
        return cast("ChatModel", self)._engine.erase_slot(index, cache_salt=cache_salt, adapter=adapter)

    def _save_state(
        self,
        path: str | os.PathLike[str],
        prompt: Messages,
        options: Mapping[str, Any],
        session: dict[str, Any] | None,
    ) -> int:
        """Save a session, whose ``options`` may include tools and parameters."""
        llm, others = cast("ChatModel", self), dict(options)
        if prompt:
            _require_prefix_cache(llm)
            ids, params = _prefix(llm, prompt, others.pop("tools", None), others)
            if not _adapters_of(llm, params):
                return _save(llm, path, ids, params, session)
        write_state(path, SavedState(b"", session))
        return 0


async def _in_thread(function: Callable[[], T]) -> T:
    from asyncio import to_thread  # imported late to keep "import pyggml" fast

    return await to_thread(function)


def _prefix(
    llm: ChatModel, prompt: Prompt | Messages, tools: Tools | None, options: Mapping[str, Any]
) -> tuple[TokenIds, SamplingParams]:
    """Return the token ids of a prefix, and the parameters that it is requested with."""
    if isinstance(prompt, (list, tuple)) and prompt and is_message(prompt[0]):
        return _chat_prefix(llm, cast("Messages", prompt), tools, options)
    if tools is not None:
        raise InvalidParameterError("tools belong to a conversation: pass a list of messages as the prompt")
    own = dict(options)
    parse_special = own.pop("parse_special", True)
    params = merge(own.pop("params", None), own)
    return prompt_ids(cast("Prompt", prompt), llm.tokenizer, parse_special), params


def _chat_prefix(
    llm: ChatModel, messages: Messages, tools: Tools | None, options: Mapping[str, Any]
) -> tuple[TokenIds, SamplingParams]:
    request = chat_request(llm, messages, tools, **options)
    last = request.conversation.messages[-1]["role"]
    if request.conversation.continues or last not in _BEFORE_USER:
        return request.prompt_ids(), request.params
    prompts = [
        chat_request(llm, [*messages, {"role": "user", "content": text}], tools, **options).prompt_ids()
        for text in _NEXT_TEXTS
    ]
    pairs = zip(*prompts, strict=False)
    return [token_id for token_id, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)], request.params


def _require_prefix_cache(llm: ChatModel) -> None:
    if not llm._has_prefix_cache:
        raise InvalidParameterError("the model was loaded with prefix_cache=False, so no prefix can be kept or saved")


def _adapters_of(llm: ChatModel, params: SamplingParams) -> list[str]:
    """Return the names of the adapters of requests with these parameters."""
    return [adapter.name for adapter, _ in llm._engine._adapters.resolve(params.adapter)]


def _save(
    llm: ChatModel,
    path: str | os.PathLike[str],
    ids: TokenIds,
    params: SamplingParams,
    session: dict[str, Any] | None,
) -> int:
    prefix = llm._engine.save_prefix(ids, cache_salt=params.cache_salt, timeout_s=params.timeout_s)
    write_state(path, SavedState(prefix, session))
    return len(ids)


def _compute(llm: ChatModel, ids: TokenIds, params: SamplingParams) -> int:
    """Compute a prompt into the prefix cache, and return its length."""
    _require_prefix_cache(llm)
    same = {name: getattr(params, name) for name in ("cache_salt", "adapter", "timeout_s")}
    only_prompt = SamplingParams(max_tokens=0, **same)
    request = PromptRequest(
        ids, only_prompt, llm.tokenizer, parse_special=True, is_streamed=False, waits_for_capacity=True
    )
    completion = Stream(request, llm._engine.enqueue(request)).finish()
    if completion.finish_reason == "timeout":
        raise RequestTimeout(f"timeout_s passed before the {len(ids)} tokens of the prefix were computed")
    return completion.prompt_tokens


def _restore(llm: ChatModel, state: SavedState, path: object, cache_salt: str | None) -> int:
    if not state.prefix:
        raise SavedStateError(f"{path} holds a session without KV cells, so there is nothing to restore")
    _require_prefix_cache(llm)
    try:
        return llm._engine.restore_prefix(state.prefix, cache_salt=cache_salt)
    except InvalidParameterError as error:
        raise SavedStateError(f"{path}: {error}") from None


def _restore_session(llm: ChatModel, state: SavedState, path: object, cache_salt: str | None) -> None:
    """Restore the prefix of a session, which can do without it."""
    try:
        _restore(llm, state, path, cache_salt)
    except (InvalidParameterError, SavedStateError, EngineError) as error:
        state.require_intact_prefix(path)
        logger.warning("the session continues, but computes its tokens again: %s", str(error))
