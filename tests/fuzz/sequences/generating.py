"""Steps of threads with an LLM and its streams. Each takes the world and three numbers that choose."""

from __future__ import annotations

import gc
import itertools
import json
import pickle
from collections.abc import Callable, Iterator
from typing import Any

from fuzz.sequences.world import N_TOKENS, PROMPTS, QUESTION, CallersError, Thing, World

OPTIONS: list[dict[str, Any]] = [
    {"n_parallel": 2, "n_ctx": 512},
    {"n_parallel": 1, "n_ctx": 256, "prefix_cache": False},
    {"n_parallel": 4, "n_ctx": 256},  # little room: requests are preempted
    {"n_parallel": 3, "n_ctx": 512, "n_batch": 32, "n_ubatch": 16},
    {"n_parallel": 1, "n_ctx": 256, "max_queue": 1, "queue_full": "wait"},
    {"n_parallel": 2, "n_ctx": 512, "max_queue": 1},
]


def length(c: int) -> int:
    return 1 + c % N_TOKENS


def full(llm: Thing) -> tuple[type[Exception], ...]:
    """Return the exceptions of a full queue."""
    import pyggml

    options = llm.facts["options"]
    return (pyggml.QueueFullError,) if "max_queue" in options and options.get("queue_full") != "wait" else ()


def progress(world: World, how: int) -> Callable[..., bool | None] | None:
    """A caller's callback that does something bad, at its second call."""
    calls = itertools.count()

    def call(*_: object) -> bool | None:
        if next(calls) < 1:
            return None
        if how % 6 == 1:
            raise CallersError
        if how % 6 == 2:
            gc.collect()
        if how % 6 == 3:
            close("llm")(world, how, 0, 0)
        if how % 6 == 4:
            generate(world, how, how, 3)
        return True

    return call if how % 6 else None


def load(world: World, a: int, b: int, c: int) -> None:
    import pyggml

    options = OPTIONS[b % len(OPTIONS)]
    with world.attempt("load", may=(CallersError,)):
        llm = pyggml.load(n_threads=1 + (c % 9 == 0), progress=progress(world, c), **options)
        world.put("llm", a, Thing(llm, facts={"options": options}))


def take_over(world: World, a: int, b: int, c: int) -> None:
    """An LLM of a Model that is there."""
    import pyggml

    if (model := world.get("model", a)) is None:
        return
    options = OPTIONS[b % len(OPTIONS)]
    with world.attempt("LLM(model)", model, may=(pyggml.InvalidParameterError,)):
        thing = Thing(pyggml.LLM(model.object, n_threads=1, **options), linked=[model], facts={"options": options})
        model.linked.append(thing)
        world.put("llm", c, thing)


def close(kind: str) -> Callable[[World, int, int, int], None]:
    def step(world: World, a: int, b: int, c: int) -> None:
        if (thing := world.get(kind, a)) is not None:
            with world.attempt(f"close {kind}", thing, lenient=True):
                thing.close()

    return step


def drop(kind: str) -> Callable[[World, int, int, int], None]:
    """Its last reference goes, perhaps in another thread than it came from."""

    def step(world: World, a: int, b: int, c: int) -> None:
        world.drop(kind, a)
        if b % 4 == 0:
            gc.collect()

    return step


def generate(world: World, a: int, b: int, c: int) -> None:
    if (llm := world.get("llm", a)) is not None:
        with world.attempt("generate", llm, may=full(llm)):
            done = llm.object.generate(PROMPTS[b % len(PROMPTS)], max_tokens=length(c), ignore_eos=True)
            world.judge(b, done.token_ids, length(c))


def generate_form(world: World, a: int, b: int, c: int) -> None:
    """With everything that ends or bends a generation."""
    if (llm := world.get("llm", a)) is None:
        return
    n = length(c)
    with world.attempt("generate with parameters", llm, may=full(llm)):
        prompt = PROMPTS[b % len(PROMPTS)]
        how = c % 4
        if how == 0:
            done = llm.object.generate(prompt, max_tokens=n, json_schema={"type": "integer"})
            if done.finish_reason == "stop":
                json.loads(done.text)
        elif how == 1:
            done = llm.object.generate(prompt, max_tokens=n, logprobs=2, prompt_logprobs=1, ignore_eos=True)
            world.judge(b, done.token_ids, n)
            assert [one.token_id for one in done.logprobs] == done.token_ids
        elif how == 2:
            done = llm.object.generate(prompt, max_tokens=n, stop=[","], ignore_eos=True)
            world.judge(b, done.token_ids, None)
            assert done.finish_reason in ("stop", "length")
        else:
            done = llm.object.generate(prompt, max_tokens=n, timeout_s=0.001 * (b % 20), ignore_eos=True)
            world.judge(b, done.token_ids, None)
            assert done.finish_reason in ("timeout", "length")


def open_stream(world: World, a: int, b: int, c: int) -> None:
    if (llm := world.get("llm", a)) is not None:
        with world.attempt("stream", llm, may=full(llm)):
            stream = llm.object.stream(PROMPTS[b % len(PROMPTS)], max_tokens=length(c), ignore_eos=True)
            world.put("stream", b, Thing(stream, linked=[llm], facts={"prompt": b, "n": length(c), "llm": llm}))


def _ended() -> tuple[type[BaseException], ...]:
    """Return the exceptions of a stream that another thread reads or closes meanwhile, or that an exception ended."""
    import pyggml

    return (StopIteration, pyggml.InvalidParameterError)


def read_stream(world: World, a: int, b: int, c: int) -> None:
    if (stream := world.get("stream", a)) is not None:
        with world.attempt("next(stream)", stream, may=(*_ended(), CallersError), lenient=True):
            for _ in range(1 + b % 5):
                chunk = next(stream.object)
                assert chunk.finish_reason in (None, "length", "cancelled", "stop")
            if c % 3 == 0:
                raise CallersError from None
        if stream.closing:
            with world.attempt("next(closed stream)", stream, may=_ended()):
                raise AssertionError(f"{next(stream.object)} from a closed stream")


def finish_stream(world: World, a: int, b: int, c: int) -> None:
    if (stream := world.get("stream", a)) is not None:
        with world.attempt("stream.finish", stream, may=_ended(), lenient=True):
            world.judge(stream.facts["prompt"], stream.object.finish().token_ids, None)


def cancel_stream(world: World, a: int, b: int, c: int) -> None:
    if (stream := world.get("stream", a)) is not None:
        with world.attempt("stream.cancel", stream, lenient=True):
            stream.object.cancel()


def batch(world: World, a: int, b: int, c: int) -> None:
    """Prompts from a generator that raises, or that asks the model itself, or with a callback that does."""
    if (llm := world.get("llm", a)) is None:
        return
    wanted = [(b + i) % len(PROMPTS) for i in range(1 + c % 9)]

    def prompts() -> Iterator[str]:
        for i, prompt in enumerate(wanted):
            if i == 3 and c % 4 == 0:
                raise CallersError
            if i == 2 and c % 4 == 1:
                generate(world, b, c, 2)
            yield PROMPTS[prompt]

    with world.attempt("generate_batch", llm, may=(CallersError, *full(llm))):
        told = progress(world, c // 4)
        answers = llm.object.generate_batch(prompts(), max_tokens=length(c), ignore_eos=True, progress=told)
        assert len(answers) == len(wanted)
        for prompt, answer in zip(wanted, answers, strict=True):
            world.judge(prompt, answer.token_ids, length(c))


def several(world: World, a: int, b: int, c: int) -> None:
    if (llm := world.get("llm", a)) is not None:
        with world.attempt("generate_n", llm):
            for answer in llm.object.generate_n(PROMPTS[b % len(PROMPTS)], 1 + c % 5, max_tokens=9, ignore_eos=True):
                world.judge(b, answer.token_ids, 9)


def chat(world: World, a: int, b: int, c: int) -> None:
    if (llm := world.get("llm", a)) is None:
        return
    with world.attempt("chat", llm, may=full(llm)):
        if b % 2:
            assert llm.object.chat(QUESTION).message.content == world.answers.content
            return
        stream = llm.object.stream_chat(QUESTION)
        content = "".join(chunk.content for chunk in itertools.islice(stream, c % 12))
        assert world.answers.content.startswith(content)


def embed(world: World, a: int, b: int, c: int) -> None:
    if (llm := world.get("llm", a)) is not None:
        with world.attempt("embed", llm):
            texts = [PROMPTS[0], PROMPTS[b % len(PROMPTS)]]
            assert (llm.object.embed(texts)[0] == world.answers.vector).all()


def logits(world: World, a: int, b: int, c: int) -> None:
    if (llm := world.get("llm", a)) is not None:
        with world.attempt("logits", llm, may=full(llm)):
            rows = llm.object.logits(PROMPTS[b % len(PROMPTS)])
            world.judge(b, [int(rows[-1].argmax())], 1)


def look(world: World, a: int, b: int, c: int) -> None:
    """Call methods that do not compute."""
    if (llm := world.get("llm", a)) is None:
        return
    how = b % 6
    with world.attempt("repr", llm, lenient=True):
        assert repr(llm.object)
    with world.attempt(("stats", "reset", "tokenize", "render", "templates", "metadata")[how], llm, lenient=how == 5):
        if how == 0:
            stats = llm.object.stats()
            assert stats.n_finished <= stats.n_requests
        elif how == 1:
            llm.object.reset()
        elif how == 2:
            ids = llm.object.tokenize(PROMPTS[c % len(PROMPTS)])
            assert llm.object.detokenize(ids).strip() == PROMPTS[c % len(PROMPTS)]
        elif how == 3:
            assert QUESTION[0]["content"] in llm.object.apply_chat_template(QUESTION)
        elif how == 4:
            llm.object.chat_templates().close()
        else:
            assert llm.object.metadata
    import pyggml

    with world.attempt("pickle", llm, may=(pyggml.CopyError,), lenient=True):
        pickle.dumps(llm.object)
        raise AssertionError("pickled")


STEPS: dict[str, tuple[float, Callable[[World, int, int, int], None]]] = {
    "load": (5, load),
    "take_over": (0.5, take_over),
    "close_llm": (2, close("llm")),
    "drop_llm": (1, drop("llm")),
    "generate": (4, generate),
    "generate_form": (3, generate_form),
    "open_stream": (4, open_stream),
    "read_stream": (4, read_stream),
    "finish_stream": (2, finish_stream),
    "cancel_stream": (1, cancel_stream),
    "close_stream": (1, close("stream")),
    "drop_stream": (1, drop("stream")),
    "batch": (2, batch),
    "several": (1, several),
    "chat": (2, chat),
    "embed": (1, embed),
    "logits": (1, logits),
    "look": (3, look),
}
