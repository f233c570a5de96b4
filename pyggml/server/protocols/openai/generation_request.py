"""What the bodies of chats and completions have in common, and what it means here."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AliasChoices, BeforeValidator, model_validator
from pydantic import Field as BodyField

from pyggml.server.http.request_body import Body
from pyggml.server.models.pool import DEFAULT, Served
from pyggml.server.observability.logs import logger
from pyggml.server.protocols.openai.errors import invalid, unsupported
from pyggml.server.protocols.sampling_fields import Sampling, given

_ID = re.compile(r"-?[0-9]{1,20}")

# How alike two names are of which one is probably the other misspelled, as difflib measures it.
_NEAR = 0.85

#: The name of a model; None is the default one, as llama-server has it.
ModelName = Annotated[str, BeforeValidator(lambda name: DEFAULT if name is None else name)]

#: A number of tokens; None and llama-server's -1: what the context has room for.
TokenLimit = Annotated[int | None, BodyField(ge=0), BeforeValidator(lambda value: None if value == -1 else value)]

#: What every token with such an id, or every token of such a text, gets added to its logit; False: it never comes.
Bias = float | Literal[False]


class StreamOptions(Body):
    """What a stream has besides its text.

    Attributes:
        include_usage: end with a chunk that has the numbers of tokens and no choices.
    """

    include_usage: bool | None = None


class StructuredOutputs(Body):
    """The form that an answer must have, as vLLM takes it.

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


class Generating(Sampling):
    """A request for text.

    Attributes:
        model: name of the model.
        n: number of answers to each prompt.
        stream: send the answer in pieces, as events.
        stream_options: what the stream has besides the text.
        max_tokens: most tokens to generate; None: what the context has room for.
        n_predict: llama-server's name for it.
        seed: seed for random numbers; of any size. None and -1: a new one each time.
        stop: strings that end the answer.
        stop_token_ids: tokens that end it, too.
        logit_bias: what is added to the logits of tokens: token ids or texts and numbers, in an object or in pairs.
        response_format: the form of the answer.
        json_schema: JSON schema that the answer must match.
        grammar: GBNF grammar that the answer must match.
        guided_json: vLLM's name for ``json_schema``.
        guided_choice: the answer is one of these texts.
        guided_grammar: vLLM's name for ``grammar``.
        structured_outputs: vLLM's newer form of the three.
        return_token_ids: send the ids of the tokens that were generated, too.
    """

    #: Fields that would change the answer and cannot be kept -> why.
    refused: ClassVar[Mapping[str, str]] = {
        "guided_regex": "write it as a grammar, or as the 'pattern' of a string in a json_schema",
        "lora": "adapters are merged into a model before it is served",
    }

    model: ModelName = DEFAULT
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
    def _read(cls, body: Any) -> Any:
        """Refuses what cannot be kept, and tells the log of fields that are probably misspelled: they are ignored."""
        if isinstance(body, dict):
            for name, why in cls.refused.items():
                if body.get(name):
                    raise unsupported(name, why)
            for name in body.keys() - _known(cls):
                _warn_of(cls, name)
        return body

    @property
    def choices(self) -> int:
        """Number of answers to each prompt."""
        return self.n or 1

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with the numbers of tokens."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def no_token_ids(self) -> dict[str, Any]:
        """What a choice without news has for them."""
        return {"token_ids": []} if self.return_token_ids else {}

    def sampling(self, served: Served, **own: Any) -> Mapping[str, Any]:
        """The fields of SamplingParams that the request sets; ``own`` are those of one endpoint.

        Raises:
            RequestError: fields contradict each other.
        """
        if self.stream_options is not None and not self.stream:
            raise invalid("stream_options", "it is only for stream=true")
        own = {"max_tokens": _first(self.max_tokens, self.n_predict)} | own
        return given(
            self,
            **own,
            **self._form(),
            stop=self._stop,
            stop_token_ids=self.stop_token_ids,
            logit_bias=None if self.logit_bias is None else _bias(self.logit_bias, served),
        )

    @property
    def _stop(self) -> list[str] | None:
        if self.stop is None:
            return None
        strings = [self.stop] if isinstance(self.stop, str) else self.stop
        return [each for each in strings if each]  # others take "" for nothing

    def _form(self) -> dict[str, Any]:
        """The form of the answer, which the request may have named in several ways."""
        guided = self.structured_outputs or StructuredOutputs()
        if guided.regex:
            raise unsupported("structured_outputs.regex", self.refused["guided_regex"])
        choice = _first(self.guided_choice, guided.choice)
        forms = {
            "response_format": _first(self.response_format, {"type": "json_object"} if guided.json_object else None),
            "json_schema": _first(self.json_schema, self.guided_json, guided.json_schema),
            "grammar": _first(self.grammar, self.guided_grammar, guided.grammar, choice and _one_of(choice)) or None,
        }
        return {name: form for name, form in forms.items() if form is not None}


@functools.cache
def _known(cls: type[Body]) -> frozenset[str]:
    """The names that the fields of a body have, here and elsewhere."""
    names = set(cls.model_fields)
    for each in cls.model_fields.values():
        if isinstance(each.validation_alias, AliasChoices):
            names.update(map(str, each.validation_alias.choices))
    return frozenset(names)


@functools.lru_cache(maxsize=1000)  # so that a client that repeats itself is heard once
def _warn_of(cls: type[Body], name: str) -> None:
    near = difflib.get_close_matches(name[:100], _known(cls), n=1, cutoff=_NEAR)
    if near:
        logger.warning("a request has a field %r, which is ignored: is %r meant?", name[:100], near[0])


def _first(*values: Any) -> Any:
    """The first that was given."""
    return next((value for value in values if value is not None), None)


def _one_of(texts: list[str]) -> str:
    """The GBNF grammar of some texts."""
    return "root ::= " + " | ".join(f'"{"".join(map(_literal, text))}"' for text in texts)


def _literal(character: str) -> str:
    return character if character.isalnum() or character in " -_.,:;" else f"\\U{ord(character):08x}"


def _bias(bias: dict[str, Bias] | list[tuple[int | str, Bias]], served: Served) -> dict[int, float]:
    pairs = bias.items() if isinstance(bias, dict) else bias
    return {token_id: _number(value) for key, value in pairs for token_id in _tokens(key, served)}


def _tokens(key: int | str, served: Served) -> list[int]:
    """The tokens that a key of ``logit_bias`` means: JSON's keys are strings, and llama-server's may be texts."""
    if isinstance(key, int) or _ID.fullmatch(key):
        return [int(key)]
    return served.llm.tokenizer.encode(key, add_special=False)


def _number(value: Bias) -> float:
    return float("-inf") if value is False else value
