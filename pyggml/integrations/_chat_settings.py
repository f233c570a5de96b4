"""Settings of a chat model, as fields of the pydantic models that LangChain and LlamaIndex have for models."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from pyggml import LLM
from pyggml.integrations._models import open_llm

_NAMED = ("temperature", "max_tokens", "stop", "seed")


class ChatSettings(BaseModel):
    """Settings of a chat model, which is loaded when the object is made. Objects with the same model share it.

    Attributes:
        model: an open LLM; or a file, a directory or a reference, as for :func:`pyggml.load`; None: the demonstration
            model.
        load_options: parameters of :func:`pyggml.load`.
        temperature: as all that follow; None: the model's default for chats, see ``LLM.chat_defaults``.
        max_tokens: maximum number of tokens of an answer.
        stop: strings that end an answer.
        seed: seed of the random numbers.
        thinking: False: a reasoning model should answer directly.
        sampling: other fields of :class:`pyggml.SamplingParams`.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, protected_namespaces=())

    model: Any = None
    load_options: dict[str, Any] = Field(default_factory=dict)
    temperature: float | None = None
    max_tokens: int | None = None
    stop: list[str] | str | None = None
    seed: int | None = None
    thinking: bool | None = None
    sampling: dict[str, Any] = Field(default_factory=dict)

    _llm_in_use: LLM = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        """Load the model, or find it among those that are loaded."""
        super().model_post_init(context)
        self._llm_in_use = open_llm(self.model, self.load_options)

    def __deepcopy__(self, memo: Any = None) -> Any:
        """Copy the settings; the model is shared."""
        return self.model_copy()

    @property
    def llm(self) -> LLM:
        """The model in use, for everything that the framework has no method for."""
        return self._llm_in_use

    def _sampling(self) -> dict[str, Any]:
        """The sampling parameters that are set."""
        named = {name: getattr(self, name) for name in _NAMED}
        return {**self.sampling, **{name: value for name, value in named.items() if value is not None}}
