"""Tokens, templates and properties, as llama-server has them."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

import pyggml
from pyggml import SamplingParams, Vocab
from pyggml.options import fields_of
from pyggml.server.http import errors
from pyggml.server.http.large_responses import long_answer, sliced
from pyggml.server.http.request import Call
from pyggml.server.http.request_body import Body
from pyggml.server.models.pool import DEFAULT
from pyggml.server.protocols.endpoint import Endpoint, Protocol
from pyggml.server.protocols.execute import EXECUTE


class Tokenize(Body):
    """A text to convert to tokens.

    Attributes:
        content: the text.
        add_special: add the tokens that begin and end a text.
        parse_special: read special tokens that the text spells as those tokens.
        with_pieces: return each token's text, too.
        model: name of the model.
    """

    content: str
    add_special: bool = False
    parse_special: bool = True
    with_pieces: bool = False
    model: str = DEFAULT


class Piece(BaseModel):
    """A token and its text; its bytes, if they are not UTF-8."""

    id: int
    piece: str | list[int]


class Tokens(BaseModel):
    """The tokens of a text."""

    tokens: list[int] | list[Piece]


class Detokenize(Body):
    """Tokens to convert to text."""

    tokens: list[int]
    model: str = DEFAULT


class Content(BaseModel):
    """The text of tokens."""

    content: str


class ApplyTemplate(Body):
    """A conversation to render.

    Attributes:
        messages: the messages, in OpenAI's form.
        tools: descriptions of tools, in OpenAI's form.
        add_generation_prompt: end with the start of the assistant's turn.
        chat_template_kwargs: more variables for the template.
        model: name of the model.
    """

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    add_generation_prompt: bool = True
    chat_template_kwargs: dict[str, Any] | None = None
    model: str = DEFAULT


class Prompt(BaseModel):
    """A rendered conversation."""

    prompt: str


class Props(BaseModel):
    """Properties of a model, with llama-server's names.

    Attributes:
        default_generation_settings: the sampling parameters of requests that say nothing else, and ``n_ctx``.
        total_slots: number of requests computed together.
        model_alias: the model's name.
        chat_template: its chat template, in Jinja; "" if it has none.
        bos_token: text of the token that begins a text; "" if there is none.
        eos_token: text of the token that ends one; "" if there is none.
        build_info: version of the server.
    """

    default_generation_settings: dict[str, Any]
    total_slots: int
    model_alias: str
    chat_template: str
    bos_token: str
    eos_token: str
    build_info: str


async def props(call: Call, body: None) -> Response:  # noqa: ARG001
    """Says what a model is, the first unless the query names another."""
    served = await call.model(call.request.query_params.get("model", DEFAULT))
    vocab = served.llm.model.vocab
    found = Props(
        default_generation_settings={"n_ctx": served.llm.n_ctx, "params": _plain(served.defaults)},
        total_slots=served.llm.n_parallel,
        model_alias=served.name,
        chat_template=served.llm.metadata.get("tokenizer.chat_template", ""),
        bos_token=_token_text(vocab, vocab.bos),
        eos_token=_token_text(vocab, vocab.eos),
        build_info=f"pyggml {pyggml.__version__}",
    )
    return JSONResponse(found.model_dump())


async def tokenize(call: Call, body: Tokenize) -> Response:
    """Converts a text to tokens."""
    tokenizer = (await call.model(body.model)).llm.tokenizer

    def answer() -> Response:
        ids = tokenizer.encode(body.content, add_special=body.add_special, parse_special=body.parse_special)
        slices: Iterable[list[Any]] = sliced(ids)
        if body.with_pieces:
            slices = ([{"id": each, "piece": _piece(tokenizer.piece(each))} for each in some] for some in slices)
        return long_answer("tokens", slices)

    return await call.aside(answer)


async def detokenize(call: Call, body: Detokenize) -> Response:
    """Converts tokens to text."""
    tokenizer = (await call.model(body.model)).llm.tokenizer
    return await call.aside(lambda: JSONResponse({"content": tokenizer.decode(body.tokens, remove_special=False)}))


# The method's own parameters, of which chat_template would open a file.
_NO_VARIABLES = frozenset(inspect.signature(pyggml.LLM.apply_chat_template).parameters)


async def apply_template(call: Call, body: ApplyTemplate) -> Response:
    """Renders a conversation."""
    llm = (await call.model(body.model)).llm
    variables = body.chat_template_kwargs or {}
    if taken := sorted(_NO_VARIABLES & variables.keys()):
        message = f"{taken[0]!r} is no variable of a template"
        raise errors.invalid(message, "chat_template_kwargs")

    def rendered() -> Response:
        prompt = llm.apply_chat_template(body.messages, body.tools, body.add_generation_prompt, **variables)
        return JSONResponse({"prompt": prompt})

    return await call.aside(rendered)


def _token_text(vocab: Vocab, token_id: int | None) -> str:
    return "" if token_id is None else vocab.text(token_id)


def _plain(params: SamplingParams) -> dict[str, Any]:
    """Sampling parameters that JSON can write."""
    values = {name: getattr(params, name) for name in fields_of(SamplingParams)}
    return {name: value for name, value in values.items() if isinstance(value, (int, float, str, tuple, type(None)))}


def _piece(piece: bytes) -> str | list[int]:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)


TEXT = Protocol(
    "text",
    (
        Endpoint("GET", "/props", props, "Show what a model is", None, Props),
        Endpoint("POST", "/tokenize", tokenize, "Convert a text to tokens", Tokenize, Tokens),
        Endpoint("POST", "/detokenize", detokenize, "Convert tokens to a text", Detokenize, Content),
        Endpoint("POST", "/apply-template", apply_template, "Render a conversation", ApplyTemplate, Prompt),
    ),
    EXECUTE.error_body,
)
