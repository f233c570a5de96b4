"""A help desk over HTTP: sorts a customer's message into a form, and streams a reply as server-sent events.

python examples/service.py -m model.gguf --port 8000      needs FastAPI 0.135 or later and uvicorn
"""

import argparse
import sys
from collections.abc import AsyncIterator
from typing import Annotated, Literal

import uvicorn
from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import JSONResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import BaseModel, Field

import pyggml

router = APIRouter()


class Message(BaseModel):
    """A customer's message."""

    text: str = Field(min_length=1, max_length=4000)


class Ticket(BaseModel):
    """The form. The model can write nothing else, and writes the fields in this order."""

    customer: str = Field(max_length=30)
    product: str = Field(max_length=30)
    request: Literal["refund", "repair", "replacement", "information"]


def conversation(system: str, message: Message) -> list[dict[str, str]]:
    return [{"role": "system", "content": system}, {"role": "user", "content": message.text}]


def loaded_model(request: Request) -> pyggml.LLM:
    llm: pyggml.LLM = request.app.state.llm
    return llm


Model = Annotated[pyggml.LLM, Depends(loaded_model)]


@router.post("/tickets")
async def file_ticket(message: Message, llm: Model) -> Ticket:
    """Fill in the form."""
    messages = conversation("Fill in a form with facts from the customer's message.", message)
    done = await llm.achat(messages, json_schema=Ticket, temperature=0, max_tokens=500)
    ticket: Ticket = done.parsed
    return ticket


async def begin_reply(message: Message, llm: Model) -> AsyncIterator[pyggml.AsyncChatStream]:
    """Submit the request before the response begins, while an error still has a status code.

    A client that disconnects ends the block, and with it the generation.
    """
    messages = conversation("You work for a shop. Reply to the customer in two friendly sentences.", message)
    async with llm.astream_chat(messages, temperature=0, max_tokens=1000, timeout_s=60) as stream:
        yield stream


@router.post("/replies", response_class=EventSourceResponse)
async def stream_reply(
    stream: Annotated[pyggml.AsyncChatStream, Depends(begin_reply)],
) -> AsyncIterator[ServerSentEvent]:
    """Send the reply as it is generated, and a last event that says how it ended."""
    async for chunk in stream:
        if chunk.content:
            yield ServerSentEvent(data=chunk.content)
    done = stream.completion
    yield ServerSentEvent(event="done", data={"reason": done.finish_reason, "tokens": len(done.token_ids)})


@router.get("/health")
async def health(llm: Model) -> pyggml.EngineStats:
    """Numbers for a monitor."""
    return llm.stats()


async def refuse(_: Request, error: Exception) -> JSONResponse:
    """Answer with the status that fits an error of pyggml, and its message."""
    status = 429 if isinstance(error, pyggml.QueueFullError) else 400 if isinstance(error, ValueError) else 503
    return JSONResponse({"detail": str(error)}, status)


def create_app(llm: pyggml.LLM) -> FastAPI:
    """The service around a model, which the caller closes."""
    app = FastAPI(title="Help desk")
    app.state.llm = llm
    app.include_router(router)
    app.add_exception_handler(pyggml.InferError, refuse)
    return app


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default=pyggml.SHIPPED_MODEL, help="GGUF file, directory or hf:org/repo")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    args = parser.parse_args()
    with pyggml.load(args.model, n_parallel=8, max_queue=32) as llm:
        uvicorn.run(create_app(llm), host=args.host, port=args.port, timeout_graceful_shutdown=10)


if __name__ == "__main__":
    try:
        main()
    except pyggml.InferError as error:
        sys.exit(f"service.py: {error}")
