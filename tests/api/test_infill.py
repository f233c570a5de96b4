"""Infilling: prompts in the formats of models of code, and the texts that fill gaps."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checkpoints import models

import pyggml

PREFIX, SUFFIX = "def add(a, b):\n    return ", "\n\nprint(add(1, 2))\n"
FILES = {"a.py": "A = 1\n", "b.py": "B = 2\n"}

#: The special tokens of families, and the prompts that their model cards and papers show.
FORMATS: dict[str, tuple[tuple[str, ...], str, str | None]] = {
    "qwen": (
        ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"),
        f"<|fim_prefix|>{PREFIX}<|fim_suffix|>{SUFFIX}<|fim_middle|>",
        "<|repo_name|>mine\n<|file_sep|>a.py\nA = 1\n\n<|file_sep|>b.py\nB = 2\n\n<|file_sep|>c.py\n"
        f"<|fim_prefix|>{PREFIX}<|fim_suffix|>{SUFFIX}<|fim_middle|>",
    ),
    "starcoder2": (
        ("<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<fim_pad>", "<repo_name>", "<file_sep>"),
        f"<fim_prefix>{PREFIX}<fim_suffix>{SUFFIX}<fim_middle>",
        "<repo_name>mine<file_sep>a.py\nA = 1\n<file_sep>b.py\nB = 2\n"
        f"<file_sep><fim_prefix>c.py\n{PREFIX}<fim_suffix>{SUFFIX}<fim_middle>",
    ),
    "granite": (
        ("<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<fim_pad>", "<reponame>", "<filename>"),
        f"<fim_prefix>{PREFIX}<fim_suffix>{SUFFIX}<fim_middle>",
        "<reponame>mine<filename>a.py\nA = 1\n\n<filename>b.py\nB = 2\n\n<filename>c.py\n"
        f"<fim_prefix>{PREFIX}<fim_suffix>{SUFFIX}<fim_middle>",
    ),
    "deepseek": (
        ("<｜fim▁hole｜>", "<｜fim▁begin｜>", "<｜fim▁end｜>"),
        f"<｜fim▁begin｜>{PREFIX}<｜fim▁hole｜>{SUFFIX}<｜fim▁end｜>",
        f"<｜fim▁begin｜>#a.py\nA = 1\n\n#b.py\nB = 2\n\n#c.py\n{PREFIX}<｜fim▁hole｜>{SUFFIX}<｜fim▁end｜>",
    ),
    "codellama": (
        ("▁<PRE>", "▁<MID>", "▁<SUF>", "▁<EOT>"),
        f"▁<PRE>{PREFIX}▁<SUF>{SUFFIX}▁<MID>",
        None,
    ),
    "codestral": (
        ("[PREFIX]", "[MIDDLE]", "[SUFFIX]"),
        f"[SUFFIX]{SUFFIX}[PREFIX]{PREFIX}",
        f"[SUFFIX]{SUFFIX}[PREFIX]+++++ a.py\nA = 1\n\n+++++ b.py\nB = 2\n\n+++++ c.py\n{PREFIX}",
    ),
    "plamo": (
        ("<|plamo:fim_prefix|>", "<|plamo:fim_middle|>", "<|plamo:fim_suffix|>"),
        f"<|plamo:fim_prefix|>{PREFIX}<|plamo:fim_suffix|>{SUFFIX}<|plamo:fim_middle|>",
        None,
    ),
}


def write(path: Path, *special: str) -> Path:
    return models.write_llama(path, models.byte_vocabulary(*special))


def spelled(llm: pyggml.LLM, token_ids: list[int]) -> str:
    """The prompt as text, which the byte vocabulary spells without loss."""
    vocab = llm.model.vocab
    assert token_ids[0] == vocab.bos
    parts = [vocab.piece(each) or vocab.text(each).encode() for each in token_ids[1:]]
    return b"".join(parts).decode()


@pytest.fixture(scope="module")
def coder(model_dir: Path) -> Iterator[pyggml.LLM]:
    with pyggml.load(write(model_dir / "coder.gguf", *FORMATS["qwen"][0]), n_ctx=1024, n_threads=1) as llm:
        yield llm


@pytest.mark.parametrize("family", FORMATS)
def test_prompts(family: str, model_dir: Path) -> None:
    special, alone, with_files = FORMATS[family]
    with pyggml.load(write(model_dir / f"fim-{family}.gguf", *special), n_ctx=512) as llm:
        prompt = llm.infill_prompt(PREFIX, SUFFIX)
        assert spelled(llm, prompt.token_ids) == alone
        assert {llm.model.vocab.find(text) for text in special} == {*prompt.stop_token_ids}
        assert (prompt.n_files, prompt.is_truncated) == (0, False)
        if with_files is None:
            with pytest.raises(pyggml.InvalidParameterError, match="no format for extra_files"):
                llm.infill_prompt(PREFIX, SUFFIX, extra_files=FILES)
            return
        files = llm.infill_prompt(PREFIX, SUFFIX, extra_files=FILES, path="c.py", repository="mine")
        assert spelled(llm, files.token_ids) == with_files
        assert files.n_files == 2
        pairs = llm.infill_prompt(PREFIX, SUFFIX, extra_files=[*FILES.items()], path="c.py", repository="mine")
        assert pairs == files


def test_spaces_of_sentencepiece(model_dir: Path) -> None:
    """The prefix is encoded like a text, with a space before it, and the suffix without, as CodeLlama was trained."""
    vocabulary = models.real_vocabulary("llama-spm")
    texts: Any = vocabulary["tokenizer.ggml.tokens"]
    special = ["▁<PRE>", "▁<SUF>", "▁<MID>", "▁<EOT>"]
    vocabulary["tokenizer.ggml.tokens"] = [*texts, *special]
    for name, value in ("token_type", 3), ("scores", 0):
        numbers: Any = vocabulary[f"tokenizer.ggml.{name}"]
        vocabulary[f"tokenizer.ggml.{name}"] = np.append(numbers, np.full(4, value, numbers.dtype))
    path = models.write_llama(model_dir / "fim-spm.gguf", vocabulary)
    with pyggml.load(path, n_ctx=512) as llm:
        vocab = llm.model.vocab
        prompt = llm.infill_prompt("x = 1", "y = 2").token_ids
        pre, suf, mid = (vocab.find(text) or -1 for text in special[:3])
        assert prompt[:2] == [vocab.bos, pre]
        assert suf is not None
        gap = prompt.index(suf)
        assert prompt[2:gap] == llm.tokenize("x = 1", add_special=False)
        assert vocab.text(prompt[2]) == "▁x"
        assert (vocab.text(prompt[gap + 1]), prompt[-1]) == ("y", mid)


def test_special_tokens_in_texts_are_text(coder: pyggml.LLM) -> None:
    prompt = coder.infill_prompt("a<|fim_suffix|>", "<|fim_middle|>b", extra_files={"<|file_sep|>": "<|repo_name|>"})
    find = coder.model.vocab.find
    for text, n in (("<|fim_suffix|>", 1), ("<|fim_middle|>", 1), ("<|file_sep|>", 2), ("<|repo_name|>", 1)):
        assert prompt.token_ids.count(find(text) or -1) == n, text


def test_texts(coder: pyggml.LLM, run: Callable[[Any], Any]) -> None:
    prompt = coder.infill_prompt(PREFIX, SUFFIX)
    options: dict[str, Any] = {"max_tokens": 12, "temperature": 1.0, "seed": 5}
    expected = coder.generate(prompt.token_ids, stop_token_ids=prompt.stop_token_ids, **options)
    assert coder.infill(PREFIX, SUFFIX, **options).token_ids == expected.token_ids
    assert coder.infill(PREFIX, SUFFIX, pyggml.SamplingParams(**options)).token_ids == expected.token_ids
    stream = coder.stream_infill(PREFIX, SUFFIX, **options)
    assert "".join(chunk.text for chunk in stream) == expected.text

    async def main() -> tuple[list[int], str]:
        done = await coder.ainfill(PREFIX, SUFFIX, **options)
        async with coder.astream_infill(PREFIX, SUFFIX, **options) as chunks:
            return done.token_ids, "".join([chunk.text async for chunk in chunks])

    assert run(main()) == (expected.token_ids, expected.text)


def test_long_texts_are_tokenized_outside_the_event_loop(
    coder: pyggml.LLM, run: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: set[int] = set()
    encode = coder.tokenizer.encode

    def observed(*args: Any, **options: Any) -> list[int]:
        threads.add(threading.get_ident())
        return encode(*args, **options)

    monkeypatch.setattr(coder.tokenizer, "encode", observed)
    files = {"a.py": "x" * 5_000}
    for texts, is_long in (
        ((PREFIX, SUFFIX, {}), False),
        (("p" * 5_000, "", {}), True),
        (("", "s" * 5_000, {}), True),
        ((PREFIX, SUFFIX, files), True),
    ):
        *around, extra_files = texts
        threads.clear()

        async def main(around: Any = around, extra_files: Any = extra_files) -> None:
            options = {"extra_files": extra_files, "max_tokens": 2, "truncate": True}
            await coder.ainfill(*around, **options)
            async with coder.astream_infill(*around, **options):
                pass

        run(main())
        assert threads, texts
        assert (threading.get_ident() in threads) is not is_long, texts


def test_special_tokens_end_the_text(coder: pyggml.LLM) -> None:
    find = coder.model.vocab.find
    for text in FORMATS["qwen"][0]:
        token_id = find(text)
        done = coder.infill(PREFIX, SUFFIX, max_tokens=4, logits_processor=lambda _ids, _logits, id=token_id: id)
        assert (done.text, done.finish_reason, done.stop_reason) == ("", "stop", token_id)


def test_long_texts(coder: pyggml.LLM) -> None:
    prefix, suffix = "p" * 2000, "s" * 2000
    with pytest.raises(pyggml.ContextOverflowError):
        coder.infill(prefix, suffix, max_tokens=10)
    assert coder.infill(prefix, suffix, max_tokens=10, truncate=True, ignore_eos=True).prompt_tokens == 1024 - 10
    prompt = coder.infill_prompt("<" + prefix, suffix + ">", max_tokens=104)
    text = spelled(coder, prompt.token_ids)
    assert text == f"<|fim_prefix|>{'p' * 75}<|fim_suffix|>{'s' * 25}<|fim_middle|>"
    assert (len(prompt.token_ids), prompt.is_truncated) == (104, True)
    short = coder.infill_prompt(prefix, "s" * 5, max_tokens=104)
    assert spelled(coder, short.token_ids) == f"<|fim_prefix|>{'p' * 95}<|fim_suffix|>sssss<|fim_middle|>"
    files = {f"{n}.py": "x" * 100 for n in range(5)}
    kept = coder.infill_prompt("p", "s", extra_files=files, max_tokens=300)
    assert (kept.n_files, kept.is_truncated) == (2, True)
    assert "3.py" in spelled(coder, kept.token_ids)
    assert "2.py" not in spelled(coder, kept.token_ids)
    assert coder.infill_prompt("p", "s", max_tokens=300).is_truncated is False
    with pytest.raises(pyggml.ContextOverflowError, match="max_tokens=3 leaves no tokens"):
        coder.infill_prompt("p", "s", max_tokens=3)


def test_empty_texts(coder: pyggml.LLM) -> None:
    assert spelled(coder, coder.infill_prompt("", "").token_ids) == "<|fim_prefix|><|fim_suffix|><|fim_middle|>"


def test_what_is_refused(coder: pyggml.LLM, tiny_path: Path) -> None:
    for arguments, said in (
        ((5, "b"), "prefix must be text"),
        (("a", None), "suffix must be text"),
        (("a", "b", {"extra_files": [5]}), "extra_files must be paths"),
        (("a", "b", {"extra_files": {"a": 5}}), "extra_files must be paths"),
        (("a", "b", {"path": 5}), "path must be text"),
        (("a", "b", {"repository": 5}), "repository must be text"),
        (("a", "b", {"trunkate": True}), "truncate"),
    ):
        *texts, options = arguments if len(arguments) == 3 else (*arguments, {})
        with pytest.raises(pyggml.InferError, match=said):
            coder.infill(*texts, **options)
    with pyggml.load(tiny_path, n_ctx=256) as llm, pytest.raises(pyggml.InvalidParameterError, match="cannot fill in"):
        llm.infill("a", "b")
