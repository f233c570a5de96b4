"""Tokens, templates and properties, as llama-server has them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from pyggml.server.call import Call
from pyggml.server.models import DEFAULT
from pyggml.server.protocol import Endpoint, Protocol
from pyggml.server.protocols.execute import EXECUTE
from pyggml.server.sampling import Body


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


async def tokenize(call: Call, body: Tokenize) -> Response:
    """Converts a text to tokens."""
    tokenizer = (await call.model(body.model)).llm.tokenizer

    def tokens() -> list[Any]:
        ids = tokenizer.encode(body.content, add_special=body.add_special, parse_special=body.parse_special)
        return [{"id": each, "piece": _piece(tokenizer.piece(each))} for each in ids] if body.with_pieces else ids

    return JSONResponse({"tokens": await call.aside(tokens)})


async def detokenize(call: Call, body: Detokenize) -> Response:
    """Converts tokens to text."""
    tokenizer = (await call.model(body.model)).llm.tokenizer
    return JSONResponse({"content": await call.aside(tokenizer.decode, body.tokens, remove_special=False)})


async def apply_template(call: Call, body: ApplyTemplate) -> Response:
    """Renders a conversation."""
    llm = (await call.model(body.model)).llm
    prompt = await call.aside(
        llm.apply_chat_template,
        body.messages,
        body.tools,
        body.add_generation_prompt,
        **(body.chat_template_kwargs or {}),
    )
    return JSONResponse({"prompt": prompt})


def _piece(piece: bytes) -> str | list[int]:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)


TEXT = Protocol(
    "text",
    (
        Endpoint("POST", "/tokenize", tokenize, "Convert a text to tokens", Tokenize, Tokens),
        Endpoint("POST", "/detokenize", detokenize, "Convert tokens to a text", Detokenize, Content),
        Endpoint("POST", "/apply-template", apply_template, "Render a conversation", ApplyTemplate, Prompt),
    ),
    EXECUTE.error_body,
)
