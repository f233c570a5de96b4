"""Tokens, templates and properties, as in llama-server's API; tokens also as in vLLM's."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from pydantic import AliasChoices, BaseModel, model_validator
from pydantic import Field as BodyField
from starlette.responses import JSONResponse, Response

import pyggml
from pyggml import SamplingParams, Vocab
from pyggml.options import fields_of
from pyggml.server.http import errors
from pyggml.server.http.large_responses import in_slices, large_json_response
from pyggml.server.http.request import ServerRequest
from pyggml.server.http.request_body import Body
from pyggml.server.models.pool import DEFAULT
from pyggml.server.protocols.chat_options import TEMPLATE_TERMS, TemplateVariables
from pyggml.server.protocols.endpoint import Endpoint, Protocol
from pyggml.server.protocols.execute import EXECUTE
from pyggml.server.protocols.infilling import INFILL
from pyggml.server.protocols.llama_server_completion import COMPLETION
from pyggml.server.protocols.lora_adapters import AdapterInfos, Success, lora_adapters, set_lora_adapters
from pyggml.server.protocols.model_loading import MODEL_LOADING
from pyggml.server.protocols.slots import SlotList, SlotResult, act_on_slot, slots


class Tokenize(Body):
    """A text to tokenize.

    Attributes:
        content: the text.
        prompt: the text, for clients of vLLM.
        add_special: add the tokens that begin and end a text; None: only to a ``prompt``. Or ``add_special_tokens``.
        parse_special: parse special tokens written in the text.
        with_pieces: also return the text of each token.
        model: name of the model.
    """

    content: str | None = None
    prompt: str | None = None
    add_special: bool | None = BodyField(None, validation_alias=AliasChoices("add_special", "add_special_tokens"))
    parse_special: bool = True
    with_pieces: bool = False
    model: str = DEFAULT

    @model_validator(mode="after")
    def _require_text(self) -> Tokenize:
        if (self.content is None) == (self.prompt is None):
            raise ValueError("one of the fields 'content' and 'prompt' is needed")
        return self

    @property
    def text(self) -> str:
        """The text."""
        return self.content or self.prompt or ""

    @property
    def adds_special(self) -> bool:
        """True if tokens that begin and end a text are added."""
        return self.prompt is not None if self.add_special is None else self.add_special


class Piece(BaseModel):
    """A token and its text, or its bytes if they are not UTF-8."""

    id: int
    piece: str | list[int]


class Tokens(BaseModel):
    """The tokens of a text, their number and the size of the context."""

    tokens: list[int] | list[Piece]
    count: int
    max_model_len: int


class Detokenize(Body):
    """Tokens to convert to text."""

    tokens: list[int]
    model: str = DEFAULT


class Content(BaseModel):
    """The text of tokens, by llama-server's and by vLLM's name."""

    content: str
    prompt: str


class TokenizerInfo(BaseModel):
    """Special tokens and the chat template, with the names of Hugging Face's ``tokenizer_config.json``."""

    tokenizer_class: str
    bos_token: str | None
    eos_token: str | None
    pad_token: str | None
    chat_template: str | None


class ApplyTemplate(Body):
    """A conversation to render.

    Attributes:
        messages: the messages, in OpenAI's form.
        tools: descriptions of tools, in OpenAI's form.
        add_generation_prompt: end with the start of the assistant's turn.
        chat_template_kwargs: additional variables of the template.
        model: name of the model.
    """

    terms: ClassVar[Mapping[str, str]] = TEMPLATE_TERMS

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    add_generation_prompt: bool = True
    chat_template_kwargs: TemplateVariables = None
    model: str = DEFAULT


class Prompt(BaseModel):
    """A rendered conversation."""

    prompt: str


class Props(BaseModel):
    """Properties of a model, with llama-server's names.

    Attributes:
        default_generation_settings: the default sampling parameters, and ``n_ctx``.
        total_slots: maximum number of running requests.
        model_alias: the model's name.
        chat_template: its chat template, in Jinja; "": none.
        bos_token: text of the token that begins a text; "": none.
        eos_token: text of the token that ends a text; "": none.
        build_info: version of the server.
    """

    default_generation_settings: dict[str, Any]
    total_slots: int
    model_alias: str
    chat_template: str
    bos_token: str
    eos_token: str
    build_info: str


async def props(request: ServerRequest) -> Response:
    """Describe a model: the first one, unless the query names another."""
    model = await request.lease_model(request.http.query_params.get("model", DEFAULT))
    vocab = model.llm.model.vocab
    properties = Props(
        default_generation_settings={"n_ctx": model.llm.n_ctx, "params": _json_fields(model.defaults)},
        total_slots=model.llm.n_parallel,
        model_alias=model.name,
        chat_template=model.llm.metadata.get("tokenizer.chat_template", ""),
        bos_token=_token_text(vocab, vocab.bos),
        eos_token=_token_text(vocab, vocab.eos),
        build_info=f"pyggml {pyggml.__version__}",
    )
    return JSONResponse(properties.model_dump())


async def tokenize(request: ServerRequest, body: Tokenize) -> Response:
    """Convert a text to tokens."""
    llm = (await request.lease_model(body.model)).llm
    tokenizer = llm.tokenizer

    def respond() -> Response:
        # A list of a million numbers at once would hold the GIL for a tenth of a second.
        batch = tokenizer.encode_batch([body.text], add_special=body.adds_special, parse_special=body.parse_special)
        ids = batch.ids
        slices: Iterable[list[Any]] = (each.tolist() for each in in_slices(ids))
        if body.with_pieces:
            slices = ([{"id": each, "piece": _piece(tokenizer.piece(each))} for each in ids] for ids in slices)
        return large_json_response("tokens", slices, count=len(ids), max_model_len=llm.n_ctx)

    return await request.run_for("tokens", respond)


async def detokenize(request: ServerRequest, body: Detokenize) -> Response:
    """Convert tokens to text."""
    tokenizer = (await request.lease_model(body.model)).llm.tokenizer
    text = await request.run_for("tokens", tokenizer.decode, body.tokens, remove_special=False)
    return JSONResponse(Content(content=text, prompt=text).model_dump())


async def tokenizer_info(request: ServerRequest) -> Response:
    """Describe the tokenizer of a model: the first one, unless the query names another."""
    llm = (await request.lease_model(request.http.query_params.get("model", DEFAULT))).llm
    vocab = llm.model.vocab
    info = TokenizerInfo(
        tokenizer_class=type(llm.tokenizer).__name__,
        bos_token=_token_text(vocab, vocab.bos) or None,
        eos_token=_token_text(vocab, vocab.eos) or None,
        pad_token=_token_text(vocab, vocab.pad) or None,
        chat_template=llm.metadata.get("tokenizer.chat_template"),
    )
    return JSONResponse(info.model_dump())


# The method's own parameters; as a variable, chat_template would open a file.
_RESERVED = frozenset(inspect.signature(pyggml.LLM.apply_chat_template).parameters)


async def apply_template(request: ServerRequest, body: ApplyTemplate) -> Response:
    """Render a conversation with the model's chat template."""
    llm = (await request.lease_model(body.model)).llm
    variables = body.chat_template_kwargs or {}
    if reserved := sorted(_RESERVED & variables.keys()):
        message = f"{reserved[0]!r} is not a variable of the template: remove it"
        raise errors.invalid(message, "chat_template_kwargs")

    def respond() -> Response:
        prompt = llm.apply_chat_template(body.messages, body.tools, body.add_generation_prompt, **variables)
        return JSONResponse({"prompt": prompt})

    return await request.run_in_thread(respond)


class Version(BaseModel):
    """Version of the server."""

    version: str


async def version(_: ServerRequest) -> Response:
    """Return the version of the server, as vLLM does."""
    return JSONResponse({"version": pyggml.__version__})


def _token_text(vocab: Vocab, token_id: int | None) -> str:
    return "" if token_id is None else vocab.text(token_id)


def _json_fields(params: SamplingParams) -> dict[str, Any]:
    """Return the sampling parameters that can be encoded as JSON."""
    values = {name: getattr(params, name) for name in fields_of(SamplingParams)}
    return {name: value for name, value in values.items() if isinstance(value, (int, float, str, tuple, type(None)))}


def _piece(piece: bytes) -> str | list[int]:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)


LLAMA_SERVER = Protocol(
    "text",
    (
        Endpoint("GET", "/props", props, Props),
        Endpoint("GET", "/slots", slots, SlotList, other_statuses=(503,), is_probe=True),
        Endpoint("POST", "/slots/{id_slot}", act_on_slot, SlotResult),
        Endpoint("POST", "/tokenize", tokenize, Tokens),
        Endpoint("POST", "/detokenize", detokenize, Content),
        Endpoint("GET", "/tokenizer_info", tokenizer_info, TokenizerInfo),
        Endpoint("POST", "/apply-template", apply_template, Prompt),
        INFILL,
        *COMPLETION,
        *MODEL_LOADING,
        Endpoint("GET", "/version", version, Version),
        Endpoint("GET", "/lora-adapters", lora_adapters, AdapterInfos),
        Endpoint("POST", "/lora-adapters", set_lora_adapters, Success),
    ),
    EXECUTE.error_body,
)
