"""Guidance: a model whose logits pyggml computes. Needs ``guidance``.

>>> from pyggml.integrations.guidance import Pyggml
>>> Pyggml("model.gguf", echo=False) + "The sky is " + guidance.select(["blue", "green"], name="colour")

Guidance parses its grammars and samples by itself; it takes from an engine the logits and the vocabulary only.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Mapping
from itertools import takewhile
from typing import Any

import numpy as np
import numpy.typing as npt

from pyggml import LLM, Context, ContextOverflowError, InvalidParameterError
from pyggml.integrations._frameworks import needs
from pyggml.integrations._models import ModelLike, open_llm

with needs("guidance"):
    from guidance._schema import SamplingParams
    from guidance.chat import ChatTemplate, UnsupportedRoleException
    from guidance.models import Model
    from guidance.models._engine import Engine, EngineInterpreter, LogitsOutput, Tokenizer
    from guidance.models._engine._tokenizer import TokenizerWrappable

__all__ = ["Pyggml", "PyggmlEngine"]

_N_BATCH = 512
#: Contents that no template writes itself.
_SYSTEM, _USER, _ASSISTANT, _AGAIN = "@system@", "@user@", "@assistant@", "@again@"


class Pyggml(Model):
    """A model for Guidance, with the roles of the model's own chat template.

    Objects that are made of one by ``+`` share its engine. A role that the chat template does not have raises
    Guidance's ``UnsupportedRoleException``.

    Args:
        model: an open LLM, or a :class:`PyggmlEngine`; or a file, a directory or a reference, as for
            :func:`pyggml.load`; None: the demonstration model.
        echo: display the text as it grows, with the probabilities of tokens.
        chat_template: a class of Guidance's; None: the model's own template.
        sampling_params: Guidance's, such as ``{"top_p": 0.9}``.
        load_options: parameters of :func:`pyggml.load`.

    Raises:
        InferError: as :func:`pyggml.load`.
    """

    def __init__(
        self,
        model: ModelLike | PyggmlEngine = None,
        *,
        echo: bool = True,
        chat_template: type[ChatTemplate] | None = None,
        sampling_params: SamplingParams | None = None,
        load_options: Mapping[str, Any] | None = None,
    ) -> None:
        if isinstance(model, PyggmlEngine):
            if load_options or chat_template:
                raise InvalidParameterError("model is an engine already: pass the other arguments to PyggmlEngine")
            engine = model
        else:
            shown: dict[str, Any] = {"enable_token_probabilities": echo, "enable_top_k": echo}
            engine = PyggmlEngine(model, load_options, chat_template=chat_template, **shown)
        params = SamplingParams() if sampling_params is None else sampling_params
        super().__init__(interpreter=EngineInterpreter(engine), sampling_params=params, echo=echo)


class PyggmlEngine(Engine):
    """An engine of Guidance: computes logits in a context of its own. Thread-safe.

    The tokens that a call shares with the last one are not computed again.

    Args:
        model: as for :class:`Pyggml`.
        load_options: parameters of :func:`pyggml.load`.
        chat_template: as for :class:`Pyggml`.
        context_options: options of :class:`pyggml.Context`, such as ``{"n_ctx": 4096, "cache_type": "q8_0"}``; the
            size is that of the LLM unless they say otherwise.
        enable_monitoring: let Guidance watch the load of processors and memory, in a separate process.
        **options: the others of Guidance's ``Engine``.

    Attributes:
        llm: the model in use.

    Raises:
        InvalidParameterError: the model has no vocabulary that ends texts.
        InferError: as :func:`pyggml.load` and :class:`pyggml.Context`.
    """

    def __init__(
        self,
        model: ModelLike = None,
        load_options: Mapping[str, Any] | None = None,
        *,
        chat_template: type[ChatTemplate] | None = None,
        context_options: Mapping[str, Any] | None = None,
        enable_monitoring: bool = False,
        **options: Any,
    ) -> None:
        self.llm: LLM = open_llm(model, load_options)
        sizes: dict[str, Any] = {"n_ctx": self.llm.n_ctx, **(context_options or {})}
        n_batch = min(sizes["n_ctx"] or _N_BATCH, _N_BATCH)
        defaults = {"n_batch": n_batch, "n_ubatch": n_batch, "swa_full": True}  # sequences are cut and continued
        self._context = Context(self.llm.model, **{**defaults, **sizes})
        self._lock = threading.Lock()
        self._token_ids: list[int] = []
        self._last: npt.NDArray[np.float32] | None = None  # logits after them, (1, n_vocab)
        super().__init__(_tokenizer(self.llm, chat_template), enable_monitoring=enable_monitoring, **options)

    def close(self) -> None:
        """Free the context. The model stays loaded while others use it."""
        self._context.close()

    def get_logits(self, token_ids: list[int], include_all_uncached_tokens: bool = False) -> LogitsOutput:
        """Compute the logits after a text.

        Args:
            token_ids: the text.
            include_all_uncached_tokens: also return those after each token that was computed now, and those before
                the first of them.

        Returns:
            ``logits``: float32, (n, n_vocab); ``n_tokens``, ``n_cached``: number of tokens, and of those that were not
            computed again.

        Raises:
            InvalidParameterError: there are no tokens.
            ContextOverflowError: the text is longer than the context.
        """
        if not token_ids:
            raise InvalidParameterError("there is no token: begin the text with some")
        if len(token_ids) > self._context.n_ctx:
            raise ContextOverflowError(
                f"the text has {len(token_ids)} tokens, but the context only {self._context.n_ctx}: raise n_ctx"
            )
        with self._lock:
            return self._logits(list(token_ids), include_all_uncached_tokens)

    def _logits(self, token_ids: list[int], all_rows: bool) -> LogitsOutput:
        n_same = sum(takewhile(bool, map(operator.eq, token_ids, self._token_ids)))
        if n_same == len(token_ids) == len(self._token_ids) and self._last is not None:
            return {"logits": self._last, "n_tokens": n_same, "n_cached": n_same}
        before = self._last if n_same == len(self._token_ids) else None
        n_cached = self._cut(min(n_same, len(token_ids) - 1))
        if n_cached < n_same:
            before = None
        rows = [] if before is None else [before]
        for begin in range(n_cached, len(token_ids), self._context.n_batch):
            batch = token_ids[begin : begin + self._context.n_batch]
            self._context.decode(batch, output="all" if all_rows else "last")
            self._token_ids += batch
            rows.append(self._context.logits())
        self._last = rows[-1][-1:]
        logits = np.concatenate(rows) if all_rows else self._last
        return {"logits": logits, "n_tokens": len(token_ids), "n_cached": n_cached}

    def _cut(self, n: int) -> int:
        """Shorten the sequence to at most ``n`` tokens, and return its length: 0 if the model cannot forget some."""
        self._last = None
        if not self._context.seq_rm(0, n):
            self._context.memory_clear()
            n = 0
        del self._token_ids[n:]
        return n


def _tokenizer(llm: LLM, chat_template: type[ChatTemplate] | None) -> Tokenizer:
    """The vocabulary as Guidance takes it."""
    vocab = llm.model.vocab
    end = vocab.eos if vocab.eos is not None else next(iter(llm.stop_tokens), None)
    if end is None:
        raise InvalidParameterError("the vocabulary has no token that ends a text, which Guidance needs")

    def encode(text: bytes) -> list[int]:
        return llm.tokenize(text.decode(errors="replace"), add_special=False)

    bos = vocab.bos if vocab.add_bos else None
    wrapped = TokenizerWrappable(
        eos_token_id=end,
        bos_token_id=bos,
        tokens=[vocab.piece(token_id, special=True) for token_id in range(vocab.n_tokens)],
        special_token_ids=list(vocab.special_ids),
        encode_callable=encode,
    )
    template = chat_template or _template_class(llm)
    return Tokenizer(wrapped.as_ll_tokenizer(), template, bos_token_id=bos)


def _template_class(llm: LLM) -> type[ChatTemplate] | None:
    """The model's chat template as the texts around each role's contents; None: it has none."""
    source = llm.model.chat_template()
    if source is None:
        return None
    marks = _marks(llm)

    class Template(ChatTemplate):
        template_str = source

        def get_role_start(self, role_name: str, **_kwargs: Any) -> str:
            return self._marks(role_name)[0]

        def get_role_end(self, role_name: str | None = None) -> str:
            return self._marks(role_name)[1]

        def _marks(self, role: str | None) -> tuple[str, str]:
            if role not in marks:
                raise UnsupportedRoleException(role, self)
            return marks[role]

    return Template


def _marks(llm: LLM) -> dict[str, tuple[str, str]]:
    """Role -> the texts before and after its contents, as the chat template renders them.

    Between an answer and the next question, only their concatenation is known; a template's default system message is
    in none of them.
    """
    templates, vocab = llm.chat_templates(), llm.model.vocab
    # Guidance begins texts with the BOS token itself.
    bos = llm.detokenize([vocab.bos], remove_special=False) if vocab.add_bos and vocab.bos is not None else ""

    def rendered(*contents: str, asks: bool = False) -> str:
        roles = {_SYSTEM: "system", _ASSISTANT: "assistant"}
        messages = [{"role": roles.get(content, "user"), "content": content} for content in contents]
        return templates.render(messages, add_generation_prompt=asks).text.removeprefix(bos)

    user_end = rendered(_USER).partition(_USER)[2]
    assistant_start = rendered(_USER, asks=True).partition(_USER)[2].removeprefix(user_end)
    assistant_end = rendered(_USER, _ASSISTANT).partition(_ASSISTANT)[2]
    between = _between(rendered(_USER, _ASSISTANT, _AGAIN), _ASSISTANT, _AGAIN)
    user_start = between.removeprefix(assistant_end)
    found = {"user": (user_start, user_end), "assistant": (assistant_start, assistant_end)}
    try:
        with_system = rendered(_SYSTEM, _USER)
    except InvalidParameterError:
        return found
    system_start, system, _ = with_system.partition(_SYSTEM)
    if system and user_start:
        behind = _between(with_system, _SYSTEM, _USER)
        if behind.endswith(user_start):
            found["system"] = (system_start, behind.removesuffix(user_start))
    return found


def _between(text: str, first: str, second: str) -> str:
    return text.partition(first)[2].partition(second)[0]
