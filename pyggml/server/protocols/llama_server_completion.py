"""llama-server's ``/completion`` and ``/embedding``, for its clients that do not use OpenAI's API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, cast

from pydantic import AliasChoices, BaseModel, ConfigDict
from pydantic import Field as BodyField
from starlette.responses import JSONResponse, Response

from pyggml.server.http.generation import submit_prompts
from pyggml.server.http.request import ServerRequest
from pyggml.server.http.request_body import Body, require_fitting
from pyggml.server.http.sse import EVENTS
from pyggml.server.http.streaming import stream_events
from pyggml.server.models.pool import DEFAULT, LoadedModel
from pyggml.server.protocols.embedding_vectors import NO_TRUNCATION, encode
from pyggml.server.protocols.endpoint import Endpoint
from pyggml.server.protocols.infilling import llama_server_events, llama_server_response
from pyggml.server.protocols.lora_adapters import AdapterScale, adapters_of
from pyggml.server.protocols.openai.completions import Texts, as_list
from pyggml.server.protocols.sampling_fields import Sampling, sampling_overrides

_Mixed = Annotated[list[int | str], BodyField(min_length=1)]


class LlamaServerCompletion(Sampling):
    """A text to continue.

    Attributes:
        prompt: a text, token IDs, or a list of texts and token IDs that form one prompt; or a list of such prompts.
        n_probs: return the log probabilities of this many most likely tokens at each position.
        lora: the adapters by id; the others have a scale of 0.
        stream: stream the response as events.
        model: name of the model.
    """

    prompt: Texts | _Mixed
    n_probs: Annotated[int, BodyField(ge=0, le=20)] | None = None
    lora: list[AdapterScale] | None = None
    stream: bool = False
    model: str = DEFAULT

    def sampling(self, model: LoadedModel) -> Mapping[str, Any]:
        """Return the fields of SamplingParams that the request sets.

        Raises:
            RequestError: adapters are named twice.
        """
        adapter = adapters_of(self.lora, self.adapter, model)
        return sampling_overrides(self, logprobs=self.n_probs or None, adapter=adapter)

    def prompts(self, model: LoadedModel) -> list[str | list[int]]:
        """Return the prompts, each a text or token IDs."""
        prompt = self.prompt
        if isinstance(prompt, str) or not {int, str} <= {type(part) for part in prompt}:
            return as_list(cast("Texts", prompt))
        encode = model.llm.tokenizer.encode
        parts = ([part] if isinstance(part, int) else encode(cast("str", part), add_special=False) for part in prompt)
        return [[token_id for part in parts for token_id in part]]


class LlamaServerCompleted(BaseModel):
    """The continued text, or in a stream its next part; or a list of texts for several prompts."""

    model_config = ConfigDict(extra="allow")

    content: str
    stop: bool


class LlamaServerEmbedding(Body):
    """Texts to convert to vectors.

    Attributes:
        content: one text or several, each a string or token IDs.
        embd_normalize: 2: vectors of length 1; -1: as the model computes them.
        model: name of the model.
    """

    terms = NO_TRUNCATION

    content: Annotated[Texts, BodyField(validation_alias=AliasChoices("content", "input"))]
    embd_normalize: Literal[-1, 2] = 2
    model: str = DEFAULT


async def completion(request: ServerRequest, body: LlamaServerCompletion) -> Response:
    """Continue a text, with llama-server's fields."""
    model = await request.lease_model(body.model, takes_adapter=True)
    prompts = await request.run_in_thread_if_long(body.prompts, model)
    sampling = body.sampling(model)
    generation = await submit_prompts(request, model, prompts, sampling)
    if body.stream:
        return stream_events(request, llama_server_events(generation, truncated=False))
    completions = await request.cancel_on_disconnect(generation.finish())

    def respond() -> Response:
        forms = [llama_server_response(generation, done, False, index) for index, done in enumerate(completions)]
        content: Any = forms[0] if len(forms) == 1 else forms
        return JSONResponse(content)

    return await request.run_for_if_long("responses", respond)


async def embedding(request: ServerRequest, body: LlamaServerEmbedding) -> Response:
    """Convert texts to vectors, with llama-server's fields."""
    model = await request.lease_model(body.model, takes_adapter=True)
    texts = as_list(body.content)
    require_fitting(model.llm.n_ctx, texts)
    options: dict[str, Any] = {"normalize": body.embd_normalize == 2, "adapter": request.adapter}
    found = await request.run_for_if_long("texts", model.llm.embedding_request, texts, **options)
    request.count_tokens(found.n_tokens)
    vectors = await request.await_outside_engine_queue(found.arun)
    rows = [{"index": index, "embedding": [encode(row, as_base64=False)]} for index, row in enumerate(vectors)]
    return await request.run_for_if_long("responses", JSONResponse, rows)


COMPLETION = (
    Endpoint("POST", "/completion", completion, LlamaServerCompleted, EVENTS),
    Endpoint("POST", "/embedding", embedding, stream_type="application/json"),
)
