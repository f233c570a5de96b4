"""Common fields of the bodies of chats and completions, and their conversion to sampling parameters."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field as BodyField
from pydantic import model_validator

from pyggml.server.http.request_body import Body, known_names
from pyggml.server.models.pool import DEFAULT, LoadedModel
from pyggml.server.observability.logs import logger
from pyggml.server.protocols.openai.errors import invalid, unsupported
from pyggml.server.protocols.sampling_fields import Sampling, sampling_overrides

_ID = re.compile(r"-?[0-9]{1,20}")

# Similarity of two names from which on one is probably a typo of the other, as difflib measures it.
_NEAR = 0.85

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
        regex: refused.
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
        max_tokens: maximum number of tokens to generate; -1: up to the end of the context; None: the default.
        n_predict: llama-server's name of ``max_tokens``.
        seed: seed for random numbers, of any size. None and -1: a new one each time.
        stop: strings that end the generation.
        stop_token_ids: tokens that end the generation.
        logit_bias: what is added to the logits of tokens: token IDs or texts and numbers, as an object or pairs.
        response_format: format of the output.
        json_schema: JSON schema that the output must match.
        grammar: GBNF grammar that the output must match.
        guided_json: vLLM's name of ``json_schema``.
        guided_choice: the output is one of these texts.
        guided_grammar: vLLM's name of ``grammar``.
        structured_outputs: vLLM's newer form of the three.
        return_token_ids: also return the IDs of the generated tokens.
    """

    #: Fields that would change the response and are not supported, and what to do instead.
    refused: ClassVar[Mapping[str, str]] = {
        "guided_regex": "write it as a grammar, or as the 'pattern' of a string in a json_schema",
        "lora": "merge the adapter into the model before serving it",
    }

    model: str = DEFAULT
    n: Annotated[int, BodyField(ge=1)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: TokenLimit = None
    n_predict: TokenLimit = None
    stop: str | Annotated[list[str], BodyField(max_length=64)] | None = None
    stop_token_ids: list[int] | None = None
    logit_bias: dict[str, Bias] | list[tuple[int | str, Bias]] | None = None
    response_format: dict[str, Any] | None = None
    json_schema: dict[str, Any] | str | None = None
    grammar: str | None = None
    guided_json: dict[str, Any] | str | None = None
    guided_choice: Annotated[list[str], BodyField(min_length=1)] | None = None
    guided_grammar: str | None = None
    structured_outputs: StructuredOutputs | None = None
    return_token_ids: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _check_fields(cls, body: Any) -> Any:
        """Refuse unsupported fields, and log a warning about probable typos, as unknown fields are ignored."""
        if isinstance(body, dict):
            for name, instead in cls.refused.items():
                if body.get(name):
                    raise unsupported(name, instead)
            for name in body.keys() - known_names(cls).keys():
                _warn_of_typo(cls, name)
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
        own = {"max_tokens": _first(self.max_tokens, self.n_predict)} | own
        return sampling_overrides(
            self,
            **own,
            **self._format(),
            stop=self._stop,
            stop_token_ids=self.stop_token_ids,
            logit_bias=None if self.logit_bias is None else _bias(self.logit_bias, model),
        )

    @property
    def _stop(self) -> list[str] | None:
        if self.stop is None:
            return None
        strings = [self.stop] if isinstance(self.stop, str) else self.stop
        return [each for each in strings if each]  # other servers ignore ""

    def _format(self) -> dict[str, Any]:
        """Return the format of the output, which has several names."""
        guided = self.structured_outputs or StructuredOutputs()
        if guided.regex:
            raise unsupported("structured_outputs.regex", self.refused["guided_regex"])
        choice = _first(self.guided_choice, guided.choice)
        formats = {
            "response_format": _first(self.response_format, {"type": "json_object"} if guided.json_object else None),
            "json_schema": _first(self.json_schema, self.guided_json, guided.json_schema),
            "grammar": _first(self.grammar, self.guided_grammar, guided.grammar, choice and _one_of(choice)) or None,
        }
        return {name: value for name, value in formats.items() if value is not None}


@functools.lru_cache(maxsize=1000)  # so that a client's repeated typo is logged once
def _warn_of_typo(cls: type[Body], name: str) -> None:
    near = difflib.get_close_matches(name[:100], known_names(cls), n=1, cutoff=_NEAR)
    if near:
        logger.warning("a request has the unknown field %r, which is ignored: did it mean %r?", name[:100], near[0])


def _first(*values: Any) -> Any:
    """Return the first value that is not None."""
    return next((value for value in values if value is not None), None)


def _one_of(texts: list[str]) -> str:
    """Return a GBNF grammar that matches one of the texts."""
    return "root ::= " + " | ".join(f'"{"".join(map(_literal, text))}"' for text in texts)


def _literal(character: str) -> str:
    return character if character.isalnum() or character in " -_.,:;" else f"\\U{ord(character):08x}"


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
