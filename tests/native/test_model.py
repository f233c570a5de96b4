"""Model: loading, facts, and lifetimes."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from support.checkpoints import models

from pyggml import errors, lib
from pyggml._native.context import Context
from pyggml._native.model import Model
from pyggml.gguf import GGUFReader, GGUFWriter
from pyggml.units import size_label

LOADS_AT_THE_END = """
import itertools, threading, time
import pyggml

waits = itertools.cycle(range(1, 6))

def load():
    while True:
        try:
            pyggml.load(n_threads=1, n_ctx=256, progress=lambda _: time.sleep(0.001 * next(waits))).close()
        except pyggml.InferError:
            return

pyggml.load(n_threads=1, n_ctx=256).close()
for _ in range(6):
    threading.Thread(target=load, daemon=True).start()
time.sleep(0.15)
"""


def test_the_description_has_the_size_of_the_weights(tmp_path: Path) -> None:
    """Upstream takes any Llama of 30 layers for one of 256M parameters."""
    with Model(models.write_llama(tmp_path / "deep.gguf", n_layer=30)) as model:
        assert 500_000 < model.n_params < 1_500_000
        assert model.desc.startswith(f"llama {size_label(model.n_params)} ")
        assert size_label(model.n_params) in repr(model)


def test_facts(tiny: Model, tiny_path: Path) -> None:
    assert tiny.path == str(tiny_path)
    assert tiny.arch == "llama"
    assert "llama" in tiny.desc
    assert (tiny.n_ctx_train, tiny.n_embd, tiny.n_layer) == (models.N_CTX_TRAIN, models.N_EMBD, models.N_LAYER)
    assert (tiny.n_head, tiny.n_head_kv) == (models.N_HEAD, models.N_HEAD_KV)
    assert (tiny.n_swa, tiny.n_cls_out) == (0, 0)
    weights = models.llama_weights()
    assert tiny.n_params == sum(w.size for w in weights.values())
    assert tiny.size_bytes == sum(w.nbytes for w in weights.values())
    assert tiny.rope_type == lib.LLAMA_ROPE_TYPE_NORM
    assert tiny.has_decoder
    assert not any([tiny.has_encoder, tiny.is_recurrent, tiny.is_hybrid, tiny.is_diffusion])


def test_kinds_of_models(mamba: Model, bert: Model) -> None:
    assert mamba.is_recurrent
    assert mamba.arch == "mamba"
    assert bert.arch == "bert"
    assert not bert.is_recurrent


def test_metadata_is_strings_without_arrays(tiny: Model) -> None:
    metadata = tiny.metadata
    assert metadata["general.name"] == "random llama 0"
    assert metadata["llama.context_length"] == str(models.N_CTX_TRAIN)
    assert metadata["tokenizer.ggml.add_bos_token"] == "true"
    assert "tokenizer.ggml.tokens" not in metadata


def test_metadata_of_any_length(tmp_path: Path) -> None:
    long = "x" * 20_000
    path = models.write_llama(tmp_path / "long.gguf", {**models.byte_vocabulary(), "general.description": long})
    with Model(path, vocab_only=True) as model:
        assert model.metadata["general.description"] == long


def test_chat_template(tiny: Model, tmp_path: Path) -> None:
    assert tiny.chat_template() == models.BYTE_CHAT_TEMPLATE
    assert tiny.chat_template("tool_use") is None
    vocabulary = {**models.byte_vocabulary(), "tokenizer.chat_template.tool_use": "{{ tools }}"}
    del vocabulary["tokenizer.chat_template"]
    with Model(models.write_llama(tmp_path / "m.gguf", vocabulary), vocab_only=True) as model:
        assert model.chat_template() is None
        assert model.chat_template("tool_use") == "{{ tools }}"


def test_vocab_only_makes_no_context(tiny_path: Path) -> None:
    with Model(tiny_path, vocab_only=True) as model:
        assert model.vocab.tokenize("ab", add_special=False) == [97, 98]
        with pytest.raises(errors.InvalidParameterError, match="vocab_only"):
            Context(model)


def test_raw_handle(tiny: Model) -> None:
    assert lib.llama_model_n_embd(tiny.handle) == models.N_EMBD
    assert lib.llama_vocab_n_tokens(tiny.vocab.handle) == models.N_BYTE_VOCAB


def test_use_after_close(tiny_path: Path) -> None:
    model = Model(tiny_path)
    vocab = model.vocab
    model.close()
    model.close()
    assert model.n_embd == models.N_EMBD  # facts stay
    with pytest.raises(errors.ClosedError):
        _ = model.handle
    with pytest.raises(errors.ClosedError):
        _ = model.metadata
    with pytest.raises(errors.ClosedError):
        model.chat_template()
    with pytest.raises(errors.ClosedError):
        vocab.tokenize("a")
    with pytest.raises(errors.ClosedError):
        Context(model)


def test_a_context_outlives_its_closed_model(tiny_path: Path) -> None:
    with Model(tiny_path) as model:
        context = Context(model, n_ctx=256)
    with context:
        context.decode([1, 2, 3])
        assert np.isfinite(context.logits()).all()


def test_a_vocabulary_outlives_its_collected_model(tiny_path: Path) -> None:
    vocab = Model(tiny_path).vocab
    gc.collect()
    assert vocab.tokenize("ab", add_special=False) == [97, 98]


def test_reading_instead_of_mapping_gives_the_same_model(tiny: Model, tiny_path: Path) -> None:
    read = Model(tiny_path, use_mmap=False, device="cpu", check_tensors=True)
    with read, Context(tiny, n_ctx=256) as from_map, Context(read, n_ctx=256) as from_read:
        for context in (from_map, from_read):
            context.decode([5, 6, 7])
        assert np.array_equal(from_map.logits(), from_read.logits())


@pytest.mark.parametrize("padding", ["", " " * 8])  # one of the two moves the tensors off 32 bytes
def test_a_small_alignment_gives_the_same_model(tiny: Model, tiny_path: Path, tmp_path: Path, padding: str) -> None:
    with GGUFReader(tiny_path) as reader, GGUFWriter(tmp_path / "8.gguf") as writer:
        writer.set("general.alignment", 8)
        writer.set("padding", padding)
        for key in reader.metadata.keys() - {"general.alignment"}:
            writer.set(key, reader.metadata[key], reader.value_type(key))
        for info in reader.tensors.values():
            writer.add_tensor(info.name, info.shape, info.type)
        for name in reader.tensors:
            writer.write_tensor(name, reader.tensor(name))
    with Model(tmp_path / "8.gguf") as read, Context(tiny, n_ctx=256) as usual, Context(read, n_ctx=256) as small:
        for context in (usual, small):
            context.decode([5, 6, 7])
        assert np.array_equal(usual.logits(), small.logits())


def test_check_tensors_finds_impossible_weights(tmp_path: Path) -> None:
    weights = models.llama_weights()
    weights["blk.1.ffn_up.weight"][3, 5] = np.nan
    metadata = models.metadata_of(models.write_llama(tmp_path / "whole.gguf"))
    broken = models.write(tmp_path / "broken.gguf", metadata, weights)
    Model(broken).close()
    with pytest.raises(errors.ModelLoadError):
        Model(broken, check_tensors=True)


@pytest.mark.parametrize("name", ["cuda:77", "nonsense"])
def test_absent_device(tiny_path: Path, name: str) -> None:
    with pytest.raises(errors.DeviceError, match=name):
        Model(tiny_path, device=name)


class TestProgress:
    """The callback runs while the file loads, and can stop it."""

    def test_reports_up_to_1(self, tiny_path: Path) -> None:
        seen: list[float] = []
        Model(tiny_path, progress=seen.append).close()
        assert seen == sorted(seen)
        assert seen[-1] == 1.0

    def test_false_stops(self, tiny_path: Path) -> None:
        with pytest.raises(errors.ModelLoadError, match="stopped by its progress callback"):
            Model(tiny_path, progress=lambda _: False)

    @pytest.mark.slow
    def test_the_end_of_the_interpreter_waits_for_reports(self) -> None:
        """Python would end the threads that report in the middle of the engine's frames, and so the process."""
        done = subprocess.run(
            [sys.executable, "-c", LOADS_AT_THE_END], timeout=300, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")

    @pytest.mark.parametrize("kind", [KeyError, KeyboardInterrupt])
    def test_an_exception_comes_out_as_itself(self, tiny_path: Path, kind: type[BaseException]) -> None:
        error = kind("from the callback")

        def fail(_: float) -> bool:
            raise error

        with pytest.raises(kind) as caught:
            Model(tiny_path, progress=fail)
        assert caught.value is error
        error.__traceback__ = None

    def test_may_use_the_library_meanwhile(self, tiny: Model, tiny_path: Path) -> None:
        texts: list[str] = []
        Model(tiny_path, progress=lambda _: texts.append(tiny.vocab.detokenize([97]))).close()
        assert set(texts) == {"a"}


@pytest.mark.slow
def test_many_threads_load_at_once(tiny_path: Path) -> None:
    failures: list[BaseException] = []

    def load() -> None:
        try:
            for _ in range(3):
                with Model(tiny_path) as model:
                    assert model.vocab.tokenize("ab", add_special=False) == [97, 98]
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=load) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
