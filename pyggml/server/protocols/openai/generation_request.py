"""Common fields of the bodies of chats and completions, and their conversion to sampling parameters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field as BodyField
from pydantic import model_validator

from pyggml.server.http.request_body import Body
from pyggml.server.models.pool import DEFAULT, LoadedModel
from pyggml.server.protocols.lora_adapters import AdapterScale, adapters_of
from pyggml.server.protocols.openai.errors import invalid, unsupported
from pyggml.server.protocols.sampling_fields import Sampling, sampling_overrides

_ID = re.compile(r"-?[0-9]{1,20}")

#: Number of tokens; -1: up to the end of the context; None: the default.
TokenLimit = Annotated[int | None, BodyField(ge=-1)]

#: Added to the logits of tokens; False: the tokens are never generated.
Bias = float | Literal[False]


class StreamOptions(Body):
    """Options of a stream.

    Attributes:
        include_usage: end with a chunk that has the numbers of tokens and no choices.
    """

    include_usage: bool | None = None


class StructuredOutputs(Body):
    """Format of the output, as in vLLM's API.

    Attributes:
        json: a JSON schema.
        json_object: any JSON object.
        choice: one of these texts.
        grammar: a GBNF grammar.
        regex: a regular expression that matches the whole output.
    """

    json_schema: Annotated[dict[str, Any] | str | None, BodyField(validation_alias="json")] = None
    json_object: bool | None = None
    choice: Annotated[list[str], BodyField(min_length=1)] | None = None
    grammar: str | None = None
    regex: str | None = None


class GenerationRequest(Sampling):
    """A request to generate text.

    Attributes:
        model: name of the model.
        n: number of choices for each prompt.
        stream: stream the response as events.
        stream_options: options of the stream.
        logit_bias: what is added to the logits of tokens: token IDs or texts and numbers, as an object or pairs.
        response_format: format of the output.
        lora: the adapters by id, as in llama-server's API; the others have a scale of 0.
        structured_outputs: vLLM's newer form of ``json_schema``, ``choices``, ``regex`` and ``grammar``.
        return_token_ids: also return the IDs of the generated tokens.
    """

    #: Fields that would change the response and are not supported, and what to do instead.
    refused: ClassVar[Mapping[str, str]] = {}

    model: str = DEFAULT
    n: Annotated[int, BodyField(ge=1)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    logit_bias: dict[str, Bias] | list[tuple[int | str, Bias]] | None = None
    response_format: dict[str, Any] | None = None
    lora: list[AdapterScale] | None = None
    structured_outputs: StructuredOutputs | None = None
    return_token_ids: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _check_fields(cls, body: Any) -> Any:
        """Refuse unsupported fields."""
        if isinstance(body, dict):
            for name, instead in cls.refused.items():
                if body.get(name):
                    raise unsupported(name, instead)
        return body

    @property
    def n_choices(self) -> int:
        """Number of choices for each prompt."""
        return self.n or 1

    @property
    def wants_usage(self) -> bool:
        """True if a stream ends with the numbers of tokens."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def empty_token_ids(self) -> dict[str, Any]:
        """Field of a choice without new tokens."""
        return {"token_ids": []} if self.return_token_ids else {}

    def sampling(self, model: LoadedModel, **own: Any) -> Mapping[str, Any]:
        """Return the fields of SamplingParams that the request sets; ``own`` are those of one endpoint.

        Raises:
            RequestError: fields contradict each other.
        """
        if self.stream_options is not None and not self.stream:
            raise invalid("stream_options", "it is only for stream=true")
        bias = None if self.logit_bias is None else _bias(self.logit_bias, model)
        adapter = adapters_of(self.lora, self.adapter, model)
        return sampling_overrides(self, **own, **self._format(), logit_bias=bias, adapter=adapter)

    def _format(self) -> dict[str, Any]:
        """Return the format of the output in OpenAI's and vLLM's forms; None: not given."""
        guided = self.structured_outputs or StructuredOutputs()
        any_object = {"type": "json_object"} if guided.json_object else None
        formats = {
            "json_schema": guided.json_schema,
            "grammar": guided.grammar or None,
            "choices": guided.choice,
            "regex": guided.regex or None,
        }
        form = any_object if self.response_format is None else self.response_format
        return {"response_format": form} | {name: formats[name] for name in formats if getattr(self, name) is None}


def _bias(bias: dict[str, Bias] | list[tuple[int | str, Bias]], model: LoadedModel) -> dict[int, float]:
    pairs = bias.items() if isinstance(bias, dict) else bias
    return {
        token_id: float("-inf") if value is False else value for key, value in pairs for token_id in _tokens(key, model)
    }


def _tokens(key: int | str, model: LoadedModel) -> list[int]:
    """Return the tokens for a key of ``logit_bias``: a token ID, or as in llama-server's API a text."""
    if isinstance(key, int) or _ID.fullmatch(key):
        return [int(key)]
    return model.llm.tokenizer.encode(key, add_special=False)
