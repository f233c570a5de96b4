"""Arguments of the constructor, tokenization, embeddings, and what pyggml refuses."""

from __future__ import annotations

import configparser
import inspect
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checkpoints import lora_files
from support.checkpoints.models import VOCABULARIES
from support.paths import ROOT
from support.servers.hub_server import hub_at

import pyggml
from pyggml.compat import llama_cpp
from pyggml.compat.llama_cpp import (
    Llama,
    LlamaCache,
    LlamaDiskCache,
    LlamaGrammar,
    LlamaRAMCache,
    llama_grammar,
    llama_tokenizer,
)

from .conftest import PATH


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lora_base": "base.gguf"}, "applied to the model's own weights"),
        ({"kv_overrides": {"tokenizer.ggml.pre": "llama3"}}, "pyggml.gguf"),
        ({"n_ctxt": 256}, r"Llama\(\) has no parameter 'n_ctxt': did you mean 'n_ctx'"),
        ({"type_k": 999}, "known are 0 "),
        ({"tokenizer": object()}, "LlamaHFTokenizer"),
        ({"use_mlock": True, "n_gpu_layers": -1, "tensor_split": [1, 2]}, "tensor_split cannot be combined"),
        ({"chat_formatt": "chatml"}, "did you mean 'chat_format'"),
    ],
)
def test_refused_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(pyggml.InvalidParameterError, match=message):
        Llama(PATH, **arguments)


@pytest.mark.parametrize("arguments", [{"numa": True}, {"offload_kqv": False}, {"n_gqa": 8}, {"swa_full": True}])
def test_arguments_without_effect_warn(arguments: dict[str, Any]) -> None:
    (name,) = arguments
    with pytest.warns(UserWarning, match=f"{name}=.* has no effect in pyggml"):
        Llama(PATH, vocab_only=True, **arguments).close()


def test_usual_arguments() -> None:
    usual: dict[str, Any] = {"n_parts": -1, "f16_kv": True, "n_gpu_layers": -1, "use_mmap": False, "flash_attn": True}
    types: dict[str, Any] = {
        "type_k": llama_cpp.GGML_TYPE_Q8_0,
        "type_v": llama_cpp.GGML_TYPE_Q8_0,
        "rope_freq_scale": 0.5,
    }
    with Llama(PATH, n_threads=1, n_ctx=300, n_batch=64, **usual, **types) as llama:
        assert llama("Once upon a time", max_tokens=2)["usage"]["completion_tokens"] == 2
        assert (llama.n_ctx(), llama.n_batch, llama.context_params.n_ctx) == (300, 64, 300)
        llama.eval(llama.tokenize(b"x"))


def test_own_context_size() -> None:
    with Llama(PATH, n_threads=1, n_ctx=0) as llama:
        assert llama.n_ctx() == 1024


def test_no_file() -> None:
    for kind in (ValueError, FileNotFoundError):
        with pytest.raises(kind, match=r"Model path does not exist: no\.gguf"):
            Llama("no.gguf")


def test_vocabulary_alone() -> None:
    llama = Llama(str(VOCABULARIES / "ggml-vocab-llama-spm.gguf"), vocab_only=True)
    tokens = llama.tokenize(b"Hello World")
    assert tokens == [llama.token_bos(), 15043, 2787]
    assert llama.detokenize(tokens) == b"Hello World"
    assert llama.detokenize(tokens[1:]) == b" Hello World"
    assert llama.tokenize(b"</s>", special=True) == [1, llama.token_eos()]
    assert llama._ctx.ctx.value is None
    with pytest.raises(pyggml.InvalidParameterError, match="vocab_only"):
        llama("x")
    with pytest.raises(pyggml.InvalidParameterError, match="encode"):
        llama.tokenize("text")  # type: ignore[arg-type]
    llama.close()
    tokenizer = llama_tokenizer.LlamaTokenizer.from_ggml_file(PATH)
    assert tokenizer.decode(tokenizer.encode("Héllo", add_bos=False)) == "Héllo"
    tokenizer._model.native.close()


def test_tokenizer_of_transformers() -> None:
    class Fast:
        """The interface of transformers' fast tokenizers."""

        def __init__(self) -> None:
            import tokenizers

            characters = {chr(i): i for i in range(32, 127)}
            self.backend_tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(characters, unk_token=" "))
            self.backend_tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")

        def encode(self, text: str, add_special_tokens: bool) -> list[int]:
            ids: list[int] = self.backend_tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
            return ids

        def decode(self, ids: list[int], skip_special_tokens: bool) -> str:  # noqa: ARG002
            return "".join(map(chr, ids))

    tokenizer = llama_tokenizer.LlamaHFTokenizer(Fast())
    assert tokenizer.detokenize(tokenizer.tokenize(b"abc"), prev_tokens=[97]) == b"abc"
    with pytest.raises(pyggml.TokenizerError, match="not this model's tokenizer"):  # so it is used
        Llama(PATH, n_threads=1, tokenizer=tokenizer)


def test_copies_load_the_model_again(llama: Llama) -> None:
    with pickle.loads(pickle.dumps(llama)) as copy:
        assert (
            copy("Once upon", max_tokens=3, temperature=0)["choices"]
            == llama("Once upon", max_tokens=3, temperature=0)["choices"]
        )


def test_embeddings(bert_path: Path, llama: Llama) -> None:
    with Llama(str(bert_path), n_threads=1, n_ctx=64, embedding=True) as bert:
        texts = ["Hello World", "A different prompt"]
        found = bert.create_embedding(texts, model="mine")
        assert (found["object"], found["model"]) == ("list", "mine")
        assert found["usage"]["prompt_tokens"] == found["usage"]["total_tokens"] > 4
        assert [each["index"] for each in found["data"]] == [0, 1]
        np.testing.assert_allclose([each["embedding"] for each in found["data"]], bert.embed(texts), atol=1e-5)
        assert np.linalg.norm(bert.embed("Hello", normalize=True)) == pytest.approx(1)
        assert (bert.pooling_type(), len(bert.embed("x"))) == (llama_cpp.LLAMA_POOLING_TYPE_MEAN, bert.n_embd())
        assert bert.embed("word " * 200, return_count=True)[1] == 64
        with pytest.raises(ValueError, match="64"):
            bert.embed("word " * 200, truncate=False)
    # Without pooling, a vector for each token.
    assert np.array(llama.embed("Once upon a time")).shape == (5, llama.n_embd())


def test_ranking_models_say_how(tmp_path: Path) -> None:
    from support.checkpoints.models import write_bert

    path = write_bert(tmp_path / "ranks.gguf", ranks=True)
    with (
        Llama(str(path), n_threads=1, n_ctx=64) as llama,
        pytest.raises(pyggml.InvalidParameterError, match=r"llama\.llm\.rerank"),
    ):
        llama.embed("x")


def test_caches_say_that_they_do_nothing(llama: Llama, tmp_path: Path) -> None:
    assert LlamaCache is LlamaRAMCache
    with pytest.warns(UserWarning, match="LlamaRAMCache has no effect"):
        cache = LlamaCache(capacity_bytes=1)
    with pytest.warns(UserWarning, match="LlamaDiskCache has no effect"):
        LlamaDiskCache(str(tmp_path / "cache"))
    assert not (tmp_path / "cache").exists()
    llama.set_cache(cache)
    cache[[1]] = None
    assert (cache.cache_size, [1] in cache) == (0, False)
    with pytest.raises(KeyError):
        cache[[1]]
    llama.set_cache(None)


def test_grammars(tmp_path: Path) -> None:
    (tmp_path / "a.gbnf").write_text('root ::= "a"')
    assert LlamaGrammar.from_file(tmp_path / "a.gbnf")._grammar == 'root ::= "a"'
    assert LlamaGrammar.from_json_schema('{"enum": [1, 2]}')._grammar == pyggml.grammar_of({"enum": [1, 2]})
    assert "root" in llama_grammar.JSON_GBNF
    with pytest.raises(pyggml.GrammarError):
        LlamaGrammar.from_json_schema('{"type": "nothing"}')
    with pytest.raises(pyggml.InvalidParameterError, match="in the order that you want"):
        llama_grammar.json_schema_to_gbnf("{}", prop_order=["a"])


def test_every_name_is_there(llama: Llama) -> None:
    """The names of llama-cpp-python's sources, which the migration's hints are tested with, too."""
    names = configparser.ConfigParser()
    names.read(ROOT / "tests" / "data" / "habits" / "names.ini")
    listed = {
        section: names[section][f"llama-cpp-python {llama_cpp.__version__}"].split() for section in names.sections()
    }
    assert [name for name in listed["model"] if not hasattr(llama, name)] == []
    calls = (llama.create_completion, llama.create_chat_completion)
    assert set(listed["sampling"]) <= {name for call in calls for name in inspect.signature(call).parameters}
    loads = (Llama.__init__, Llama.from_pretrained)
    assert set(listed["loading"]) <= {name for load in loads for name in inspect.signature(load).parameters}


def test_download_by_pattern(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"small-Q8_0.gguf": Path(PATH).read_bytes(), "small-Q4_0.gguf": b"", "README.md": b"# Small"}
    with hub_at(tmp_path, monkeypatch) as hub:
        hub.add("org/small", files)
        with Llama.from_pretrained("org/small", "*Q8_0.gguf", n_threads=1) as llama:
            assert llama("Once upon", max_tokens=1)["usage"]["completion_tokens"] == 1
        for pattern, message in (("*Q2*", "No file found"), ("*.gguf", "Multiple files found")):
            with pytest.raises(ValueError, match=f"{message} in org/small"):
                Llama.from_pretrained("org/small", pattern)


def test_adapter(tmp_path: Path) -> None:
    file = lora_files.write_adapter(tmp_path / "law.gguf", Path(PATH), size=3.0)
    with pyggml.load(PATH, n_ctx=512, n_threads=1, device="cpu", lora={str(file): 0.5}) as llm:
        expected = llm.generate("Once", max_tokens=8).text
        assert expected != llm.generate("Once", max_tokens=8, adapter={}).text
    with Llama(PATH, n_ctx=512, n_threads=1, lora_path=str(file), lora_scale=0.5, verbose=False) as llama:
        assert llama("Once", max_tokens=8, temperature=0)["choices"][0]["text"] == expected
        ids = llama.tokenize(b"Once")
        stepwise = []
        for token in llama.generate(ids, temp=0):
            stepwise.append(token)
            if len(stepwise) == 4:
                break
        assert expected.startswith(llama.detokenize(stepwise).decode())
    with pytest.raises(pyggml.ModelNotFoundError):
        Llama(PATH, lora_path=str(tmp_path / "none.gguf"))


def test_threads_beyond_the_processors_are_left_out() -> None:
    limits = pyggml.system.cpu_limits()
    with Llama(PATH, n_threads=500, n_ctx=256) as llama:
        assert llama("x", max_tokens=1)["usage"]["completion_tokens"] == 1
        assert llama.llm.stats().n_threads == min(limits.n_processors or 500, limits.n_quota or 500)
