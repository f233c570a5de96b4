"""Steps of threads with what is under an LLM: models, contexts, engines, samplers, templates, files."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np

from fuzz.sequences.generating import close, drop, length, progress
from fuzz.sequences.world import PROMPTS, QUESTION, CallersError, Thing, World


def load_model(world: World, a: int, b: int, c: int) -> None:
    import pyggml

    with world.attempt("Model", may=(CallersError,)):
        model = pyggml.Model(pyggml.SHIPPED_MODEL, vocab_only=b % 8 == 0, progress=progress(world, c))
        world.put("model", a, Thing(model, facts={"vocab_only": b % 8 == 0}))


def vocab(world: World, a: int, b: int, c: int) -> None:
    if (model := world.get("model", a)) is not None:
        with world.attempt("vocab.tokenize", model):
            ids = model.object.vocab.tokenize(PROMPTS[b % len(PROMPTS)])
            assert model.object.vocab.detokenize(ids).strip() == PROMPTS[b % len(PROMPTS)]


def open_context(world: World, a: int, b: int, c: int) -> None:
    import pyggml

    if (model := world.get("model", a)) is not None:
        may = (pyggml.InvalidParameterError,) if model.facts["vocab_only"] else ()
        with world.attempt("Context", model, may=may):
            context = pyggml.Context(model.object, n_ctx=256, n_seq_max=1 + c % 3, n_threads=1 + (c % 9 == 0))
            world.put("context", b, Thing(context, facts={"ids": model.object.vocab.tokenize(PROMPTS[0])}))


def decode(world: World, a: int, b: int, c: int) -> None:
    """Others may decode on the same context, so what it has is only known of a new one."""
    import pyggml

    if (context := world.get("context", a)) is None:
        return
    others = (pyggml.EngineError, pyggml.ContextOverflowError, pyggml.InvalidParameterError)
    with world.attempt("decode", context, may=others):
        if b % 5 == 0:
            context.object.memory_clear()
        context.object.decode(context.facts["ids"])
        if b % 3 == 0:
            context.object.cancel()
        assert np.isfinite(context.object.logits()).all()
        if c % 3 == 0:
            context.object.state_restore(context.object.state_save())


def make_engine(world: World, a: int, b: int, c: int) -> None:
    import pyggml

    if (context := world.get("context", a)) is not None:
        with world.attempt("Engine", context, may=(pyggml.InvalidParameterError,)):
            context.closing = True  # it is taken over, or stays as it is if this is refused
            engine = pyggml.Engine(context.object)
            context.closed = True
            world.put("engine", b, Thing(engine, facts=context.facts))


def submit(world: World, a: int, b: int, c: int) -> None:
    if (engine := world.get("engine", a)) is not None:
        with world.attempt("submit", engine):
            request = engine.object.submit(engine.facts["ids"], max_tokens=length(c), ignore_eos=True)
            world.put("request", b, Thing(request, linked=[engine], facts={"got": []}))


def read(world: World, a: int, b: int, c: int) -> None:
    import pyggml

    if (request := world.get("request", a)) is None:
        return
    if b % 7 == 0:
        request.object.cancel()
    # Another thread or this one's interrupted call may be reading it.
    with world.attempt("read", request, may=(pyggml.InvalidParameterError,), lenient=True):
        if b % 3 == 0:
            request.object.read_all()
        elif b % 3 == 1:
            request.object.read_now()
        else:
            request.object.read(1 + c % 9)


def engine_look(world: World, a: int, b: int, c: int) -> None:
    if (engine := world.get("engine", a)) is not None:
        with world.attempt("engine.stats", engine):
            engine.object.stats()
        with world.attempt("engine.reset", engine):
            engine.object.reset()
        with world.attempt("engine.logits", engine):
            rows = engine.object.logits(engine.facts["ids"])
            world.judge(0, [int(rows[-1].argmax())], 1)


def sampler(world: World, a: int, b: int, c: int) -> None:
    import pyggml

    model = world.get("model", a)
    with world.attempt("Sampler", *([model] if model else [])):
        chain = pyggml.Sampler(model.object if model else None)
        thing = world.put("sampler", b, Thing(chain))
        chain.top_k(5).temp(0.8).dist(c)
        if model and c % 2:
            thing.object.grammar('root ::= "a" | "b"')


def sample(world: World, a: int, b: int, c: int) -> None:
    import pyggml

    chain, context = world.get("sampler", a), world.get("context", b)
    if chain is None:
        return
    may = (pyggml.InvalidParameterError, pyggml.EngineError, pyggml.GrammarError)
    if context is not None and c % 2:
        with world.attempt("sample", chain, context, may=may):
            chain.object.sample(context.object)
        return
    with world.attempt("apply", chain, may=may):
        chain.object.apply(np.zeros(2048, np.float32))
        chain.object.accept(c % 100)
    with world.attempt("clone", chain):
        chain.object.clone().close()


def templates(world: World, a: int, b: int, c: int) -> None:
    """Create chat templates of an LLM or a model, which the caller owns."""
    import pyggml

    llm, model = world.get("llm", a), world.get("model", a)
    if llm is not None and c % 2:
        with world.attempt("chat_templates", llm):
            world.put("templates", b, Thing(llm.object.chat_templates()))
    elif model is not None:
        with world.attempt("ChatTemplates", model):
            world.put("templates", b, Thing(pyggml.ChatTemplates(model.object)))


def render(world: World, a: int, b: int, c: int) -> None:
    if (thing := world.get("templates", a)) is not None:
        with world.attempt("render", thing):
            parser = thing.object.render(QUESTION).parser()
            parser.feed("The sky", last=True)
            assert parser.message.content == "The sky"
        if (llm := world.get("llm", b)) is not None:
            from fuzz.sequences.generating import full

            with world.attempt("chat with templates", llm, thing, may=full(llm)):
                done = llm.object.chat(QUESTION, chat_template=thing.object)
                assert done.message.content == world.answers.content


def read_file(world: World, a: int, b: int, c: int) -> None:
    import pyggml
    from pyggml import gguf

    with world.attempt("GGUFReader"):
        reader = gguf.GGUFReader(pyggml.SHIPPED_MODEL)
        thing = Thing(reader)
        world.put("reader", a, thing)
        tensor = reader.tensor(next(iter(reader.tensors)))
        if b % 2:
            thing.close()
            del reader, thing
            gc.collect()
        assert tensor.sum() is not None  # its memory lives as long as the array


def use_reader(world: World, a: int, b: int, c: int) -> None:
    if (reader := world.get("reader", a)) is not None:
        with world.attempt("reader.tensor", reader, lenient=True):
            assert reader.object.dequantized("token_embd.weight").shape
        with world.attempt("reader.metadata", reader, lenient=True):
            assert reader.object.metadata["general.architecture"]


def write_file(world: World, a: int, b: int, c: int) -> None:
    from pyggml import gguf, quant

    with world.attempt("GGUFWriter"):
        writer = gguf.GGUFWriter(world.folder / f"written-{a % 3}.gguf")
        world.put("writer", a, Thing(writer))
        writer.set("general.architecture", "llama")
        writer.add_tensor("x", (2, 32), quant.GGMLType.F32)
        if b % 2:
            writer.write_tensor("x", np.zeros((2, 32), np.float32))
            writer.finish()


def quantize(world: World, a: int, b: int, c: int) -> None:
    import pyggml

    out = world.folder / f"small-{a % 2}.gguf"
    with world.attempt("quantize", may=(CallersError,)):
        told = progress(world, c)
        pyggml.quantize(pyggml.SHIPPED_MODEL, out, "q8_0", requantize=True, n_threads=1 + b % 2, progress=told)


def inference(world: World, a: int, b: int, c: int) -> None:
    import pyggml

    with world.attempt("Inference"):
        options: dict[str, Any] = {"n_parallel": 2, "n_ctx": 512}
        llm = pyggml.Inference.cpu().use_auto(pyggml.SHIPPED_MODEL, n_threads=1, **options)
        world.put("llm", a, Thing(llm, facts={"options": options}))


STEPS: dict[str, tuple[float, Callable[[World, int, int, int], None]]] = {
    "load_model": (2, load_model),
    "close_model": (1, close("model")),
    "drop_model": (0.5, drop("model")),
    "vocab": (1, vocab),
    "open_context": (2, open_context),
    "decode": (2, decode),
    "close_context": (0.7, close("context")),
    "drop_context": (0.5, drop("context")),
    "make_engine": (1.5, make_engine),
    "submit": (2, submit),
    "read": (3, read),
    "drop_request": (0.5, drop("request")),
    "engine_look": (0.7, engine_look),
    "close_engine": (0.7, close("engine")),
    "drop_engine": (0.5, drop("engine")),
    "sampler": (1, sampler),
    "sample": (1, sample),
    "close_sampler": (0.5, close("sampler")),
    "templates": (0.7, templates),
    "render": (1, render),
    "close_templates": (0.5, close("templates")),
    "read_file": (0.5, read_file),
    "use_reader": (0.7, use_reader),
    "close_reader": (0.5, close("reader")),
    "write_file": (0.5, write_file),
    "close_writer": (0.5, close("writer")),
    "quantize": (0.15, quantize),
    "inference": (0.3, inference),
}
