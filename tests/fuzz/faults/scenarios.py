"""Scenarios for injected faults: each returns the same answer whenever nothing fails."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from support.checkpoints import models
from support.checkpoints.hf_llama import HFLlama

import pyggml
from fuzz.asgi_client import Answer, ask
from pyggml.batch import run as run_batch
from pyggml.gguf import GGUFReader, GGUFWriter
from pyggml.server import create_app

MESSAGES = [{"role": "user", "content": "What colour is the sky?"}]
SCHEMA = {"type": "object", "properties": {"a": {"enum": ["x", "yy"]}, "b": {"type": "integer"}}, "required": ["a"]}
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": SCHEMA}}]
LOAD: dict[str, Any] = {"n_ctx": 512, "n_parallel": 2, "n_threads": 2}


@dataclass
class World:
    """Shared state of scenarios: files that they only read, and a model that stays loaded."""

    folder: Path
    tiny: Path = field(init=False)
    directory: Path = field(init=False)
    n_loads: int = 0
    _llm: pyggml.LLM | None = None

    def __post_init__(self) -> None:
        self.tiny = models.write_llama(self.folder / "tiny.gguf")
        small = HFLlama(n_embd=32, n_head=2, n_head_kv=1, head_dim=16, n_ff=32, n_layer=1)
        self.directory = small.write(self.folder / "hf", stored="BF16")
        (self.folder / "rows.jsonl").write_text("".join(json.dumps({"prompt": f"row {i}"}) + "\n" for i in range(3)))

    def llm(self) -> pyggml.LLM:
        if self._llm is None:
            self._llm = pyggml.load(**LOAD)
            self.n_loads += 1
        return self._llm

    def renew(self) -> None:
        """After an EngineError, whose message says to load the model again."""
        if self._llm is not None:
            self._llm.close()
        self._llm = None


def digest(data: Any) -> str:
    return hashlib.sha256(np.ascontiguousarray(data).tobytes()).hexdigest()


def load(world: World, _folder: Path) -> Any:
    with pyggml.load(world.tiny, **LOAD) as llm:
        return llm.generate("abc", max_tokens=3, ignore_eos=True).token_ids


def divided(world: World, _folder: Path) -> Any:
    """A KV cache of streams, unified for a prompt that is longer than one."""
    with pyggml.load(world.tiny, kv_unified=False, **LOAD) as llm:
        prompts: tuple[list[int], ...] = ([1, 2, 3], [5] * 300)
        done = [llm.generate(prompt, max_tokens=3, ignore_eos=True).token_ids for prompt in prompts]
        assert llm.stats().n_kv_streams == 1
        return done


def load_unmapped(world: World, _folder: Path) -> Any:
    with pyggml.Model(world.tiny, use_mmap=False) as model, pyggml.LLM(model, n_ctx=256) as llm:
        return llm.generate("abc", max_tokens=3, ignore_eos=True).token_ids


def snapshots(world: World, _folder: Path) -> Any:
    """Evicted cells that come back from main memory, and a prefix that is saved and restored."""
    with pyggml.load(world.tiny, **LOAD | {"n_parallel": 1}) as llm:
        prompts = [[1 + (seed * 7 + i * i) % 200 for i in range(60)] for seed in range(3)]
        done = [llm.generate(prompts[i], max_tokens=3, ignore_eos=True).token_ids for i in (0, 1, 2, 0, 1)]
        assert done[3:] == done[:2]
        saved = llm._engine.save_prefix(prompts[2])
        llm.reset()
        assert llm._engine.restore_prefix(saved) == 60
        assert llm.generate(prompts[2], max_tokens=3, ignore_eos=True).token_ids == done[2]
        return done


def snapshot_files(world: World, folder: Path) -> Any:
    """Evicted cells that are written to files, and read after a restart."""
    load = LOAD | {"n_parallel": 1, "prefix_cache_dir": folder / "prefixes"}
    prompts = [[1 + (seed * 7 + i * i) % 200 for i in range(60)] for seed in range(3)]
    done = []
    for _ in range(2):
        with pyggml.load(world.tiny, **load) as llm:
            done.append([llm.generate(prompt, max_tokens=3, ignore_eos=True).token_ids for prompt in prompts])
    assert done[0] == done[1]
    return done[0]


def context(world: World, _folder: Path) -> Any:
    with pyggml.Model(world.tiny) as model, pyggml.Context(model, n_ctx=256, n_threads=2) as ctx:
        ctx.decode([1, 2, 3])
        state = ctx.state_save()
        ctx.decode([4])
        after = digest(ctx.logits())
        ctx.state_restore(state)
        ctx.decode([4])
        assert digest(ctx.logits()) == after
        return after


def generate(world: World, _folder: Path) -> Any:
    done = world.llm().generate_batch(["Once upon a time", "The sky", "One day"], max_tokens=6)
    return [each.text for each in done]


def sampled(world: World, _folder: Path) -> Any:
    llm = world.llm()
    llm.reset()
    return llm.generate("Once", max_tokens=6, temperature=0.8, seed=1, logprobs=2, repeat_penalty=1.1).text


def stream(world: World, _folder: Path) -> Any:
    return "".join(chunk.text for chunk in world.llm().stream("The sky is", max_tokens=6))


def chat(world: World, _folder: Path) -> Any:
    return world.llm().chat(MESSAGES, max_tokens=8).message.content


def tools(world: World, _folder: Path) -> Any:
    return str(world.llm().chat(MESSAGES, tools=TOOLS, max_tokens=8).message)


def schema(world: World, _folder: Path) -> Any:
    return world.llm().generate("{", json_schema=SCHEMA, max_tokens=12).text


def grammar(world: World, _folder: Path) -> Any:
    return world.llm().generate("a", grammar='root ::= ("the " | "sky ")+ [a-z]{2,9}', max_tokens=8).text


def embed(world: World, _folder: Path) -> Any:
    return world.llm().embed(["The sky", "is blue"]).round(4).tolist()


def tasks(world: World, _folder: Path) -> Any:
    async def main() -> Any:
        llm = world.llm()
        done = await asyncio.gather(*(llm.agenerate(text, max_tokens=4) for text in ("The sky", "One day")))
        async with llm.astream("Once", max_tokens=4) as chunks:
            return [each.text for each in done], "".join([chunk.text async for chunk in chunks])

    return asyncio.run(main())


def tokenizers(world: World, _folder: Path) -> Any:
    llm = world.llm()
    return llm.detokenize(llm.tokenize("The sky is blue, <|im_end|> and 12 x \u20ac"))


def inspect(world: World, _folder: Path) -> Any:
    report = pyggml.inspect(world.tiny)
    return report.estimate(n_ctx=512).total_bytes > 0, str(report)


def quantize(world: World, folder: Path) -> Any:
    pyggml.quantize(world.tiny, folder / "small.gguf", "q8_0", n_threads=2)
    return digest(np.frombuffer((folder / "small.gguf").read_bytes(), np.uint8))


def convert(world: World, folder: Path) -> Any:
    pyggml.convert(world.directory, folder / "out.gguf", n_threads=2)
    return digest(np.frombuffer((folder / "out.gguf").read_bytes(), np.uint8))


def convert_again(world: World, folder: Path) -> Any:
    """To a file that is there, which must be the old one or the new one."""
    (folder / "out.gguf").write_bytes(b"old")
    try:
        return convert(world, folder)
    except Exception:
        assert (folder / "out.gguf").read_bytes()[:3] in (b"old", b"GGU")
        raise


def directory(world: World, _folder: Path) -> Any:
    with pyggml.load(world.directory, **LOAD) as llm:
        return llm.generate("abc", max_tokens=3, ignore_eos=True).token_ids


def write_and_read(_world: World, folder: Path) -> Any:
    path = folder / "new.gguf"
    with GGUFWriter(path) as writer:
        writer.set("general.architecture", "test")
        writer.set("list", ["a", "b"] * 20)
        writer.add_tensor("t", (4, 32), pyggml.gguf.GGMLType.F32)
        writer.write_tensor("t", np.arange(128, dtype=np.float32).reshape(4, 32))
        writer.finish()
    with GGUFReader(path) as reader:
        return reader.metadata["list"], digest(reader.tensor("t"))


def isolated(world: World, _folder: Path) -> Any:
    """Generate with an isolated model; the faults are in this process's part."""
    with pyggml.load(world.tiny, isolate=True, **LOAD) as llm:
        done = llm.generate("abc", max_tokens=3, ignore_eos=True)
        return done.token_ids, "".join(chunk.text for chunk in llm.stream("abc", max_tokens=3, ignore_eos=True))


def served(world: World, _folder: Path) -> Any:
    """A chat with the server's application, whole and streamed."""

    async def main() -> list[Answer]:
        app = create_app(world.llm(), log_level="error", page=False)
        async with app.router.lifespan_context(app):
            body = {"model": "default", "messages": MESSAGES, "max_tokens": 8}
            return [
                await ask(app, {"path": "/v1/chat/completions", "body": json.dumps({**body, "stream": stream})})
                for stream in (False, True)
            ]

    whole, streamed = asyncio.run(main())
    for answer in (whole, streamed):
        if answer.status != 200 or b'"error"' in answer.body:
            assert answer.status in (200, 500, 503), answer
            world.llm().generate("a", max_tokens=1)  # says what is wrong with the engine, if that is what it is
            raise pyggml.EngineError(f"status {answer.status}: {answer.body.decode()}")
    lines = [line[6:] for line in streamed.body.decode().splitlines() if line.startswith("data: {")]
    deltas = [choice["delta"].get("content") or "" for line in lines for choice in json.loads(line)["choices"]]
    return json.loads(whole.body)["choices"][0]["message"]["content"], "".join(deltas)


def batch(world: World, folder: Path) -> Any:
    out = folder / "answers.jsonl"
    run_batch(world.folder / "rows.jsonl", out, world.llm(), params=pyggml.SamplingParams(max_tokens=4))
    return out.read_text()


SCENARIOS: dict[str, Callable[[World, Path], Any]] = {
    each.__name__: each
    for each in (
        load, divided, load_unmapped, snapshots, snapshot_files, context, generate, sampled, stream, chat, tools,
        schema, grammar, embed, tasks, tokenizers, inspect, quantize, convert, convert_again, directory,
        write_and_read, batch, isolated, served,
    )
}  # fmt: skip
