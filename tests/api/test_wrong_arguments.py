"""Wrong arguments, found by a fuzzer: each call raises the right exception, which names the argument.

A call is written as in ``fuzz/fuzzers/calls.py``: object, member, parameters as expressions.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fuzz.fuzzers import calls

import pyggml

Call = tuple[str, str, dict[str, str]]

CALLS: list[Call] = [
    ("llm", "generate", {"prompt": "'x'", "temperature": "10**400"}),
    ("llm", "generate", {"prompt": "'x'", "timeout_s": "10**400"}),
    ("llm", "generate", {"prompt": "'x'", "max_tokens": "nested(3000)"}),
    ("llm", "generate", {"prompt": "'x'", "stop_token_ids": "np.datetime64('nat')"}),
    ("llm", "generate", {"prompt": "'x'", "ignore_eos": "np.zeros((2,2))"}),
    ("llm", "generate", {"prompt": "'x'", "samplers": "[nested(3000)]"}),
    ("llm", "generate", {"prompt": "range(2**40)"}),
    ("llm", "generate_n", {"prompt": "'x'", "n": "10**400"}),
    ("llm", "generate", {"prompt": "'x'", "dry_sequence_breakers": "[b'x']"}),
    ("llm", "generate_batch", {"prompts": "np.array(3)"}),
    ("llm", "generate_batch", {"prompts": "llm"}),
    ("llm", "agenerate_batch", {"prompts": "['a']", "progress": "5"}),
    ("", "Grammar", {"text": "'root ::= \"a\"'", "prefix": "'x'", "lazy": "np.ones(2)"}),
    ("", "convert", {"source": "hf", "out": "'out.gguf'", "dry_run": "np.ones(2)"}),
    ("llm", "tokenize", {"text": "'x'", "add_special": "np.zeros((2,2))"}),
    ("llm", "detokenize", {"token_ids": "[1]", "remove_special": "np.zeros((2,2))"}),
    ("llm", "embed", {"texts": "np.array(3)"}),
    ("llm", "embed", {"texts": "'a'", "normalize": "np.zeros((2,2))"}),
    ("llm", "chat", {"messages": "[{'role':'user','content':'x'}]", "tool_choice": "nested(3000)"}),
    ("llm", "chat", {"messages": "[{'role':'user','content':'x'}]", "tool_choice": "None"}),
    ("engine", "logits", {"token_ids": "[1]", "waits": "np.zeros((2,2))"}),
    ("request", "read", {"min_tokens": "'x'"}),
    ("vocab", "inside", {"token_ids": "5"}),
    ("vocab", "piece", {"token_id": "1", "special": "np.zeros((2,2))"}),
    ("vocab", "detokenize", {"token_ids": "range(2**40)"}),
    ("tokenizer", "piece", {"token_id": "np.array([3])"}),
    ("tokenizer", "encode_parts", {"parts": "5"}),
    ("tokenizer", "encode_parts", {"parts": "['x']"}),
    ("parser", "feed", {"text": "5"}),
    ("parser", "feed", {"text": "'x'", "last": "np.zeros((2,2))"}),
    ("templates", "render", {"messages": "5"}),
    ("templates", "render", {"messages": "[{'role':'user','content':'x'}]", "tools": "5"}),
    ("templates", "render", {"messages": "[{'role':'user','content':'x'}]", "template_kwargs": "model"}),
    ("context", "state_restore", {"data": "5"}),
    ("context", "memory_clear", {"data": "np.zeros((2,2))"}),
    ("sampler", "logit_bias", {"biases": "[1]"}),
    ("sampler", "dry", {"multiplier": "0.5", "breakers": "5"}),
    ("sampler", "grammar_lazy", {"grammar": "'root ::= \"a\"'", "trigger_patterns": "None"}),
    ("sampler", "top_p", {"p": "nested(3000)"}),
    ("completion", "to_dict", {"form": "np.zeros((2,2))"}),
    ("matrix", "merged", {"matrices": "5"}),
    ("matrix", "merged", {"matrices": "['x']"}),
    ("matrix", "weights", {"name": "[]"}),
    ("matrix", "weights", {"name": "b'\\xff'"}),
    ("matrix", "save", {"path": "nested(3000)"}),
    ("reader", "tensor", {"name": "[]"}),
    ("reader", "value_type", {"key": "[]"}),
    ("writer", "set", {"key": "'a'", "value": "1", "type": "np.timedelta64(1)"}),
    ("writer", "add_tensor", {"name": "'x'", "shape": "frozenset([1])", "type": "'x'"}),
    ("writer", "write_tensor", {"name": "[]", "data": "b''"}),
    ("writer", "set", {"key": "'a'", "value": "range(2**40)"}),
    ("", "compute_imatrix", {"source": "llm", "text": "'a b '*300", "process_output": "np.zeros((2,0))"}),
    ("", "gguf.GGUFReader", {"path": "5"}),
    ("", "gguf.GGUFWriter", {"path": "'x.gguf'", "file": "5"}),
    ("", "Backend", {"device": "'\\ud800'"}),
    ("", "Backend", {"device": "5"}),
    ("", "Backend", {"n_threads": "{}"}),
    ("", "find_device", {"name": "[b'x']"}),
    ("", "device_advice", {"name": "5"}),
    ("", "Context", {"model": "model", "collector": "5"}),
    ("", "Context", {"model": "model", "type_v": "[nested(3000)]"}),
    ("", "Model", {"path": "'\\ud800'"}),
    ("", "Model", {"path": "path", "progress": "5"}),
    ("", "Model", {"path": "path", "placement": "5"}),
    ("", "Model", {"path": "path", "use_mmap": "np.zeros((2,2))"}),
    ("", "Engine", {"context": "context", "adapt_threads": "np.zeros((2,2))"}),
    ("", "Placement", {"devices": "5"}),
    ("", "Placement", {"tensor_split": "5"}),
    ("", "load", {"source": "path", "override_tensor": "0.5"}),
    ("", "load", {"source": "hf", "progress": "5"}),
    ("", "convert", {"source": "hf", "out": "'out.gguf'", "progress": "5"}),
    ("", "quantize", {"source": "path", "out": "'out.gguf'", "outtype": "'q8_0'", "tensor_types": "np.ones(3)"}),
    ("", "compute_imatrix", {"source": "llm", "text": "'a b '*300", "progress": "5"}),
    ("", "open_tokenizer", {"path": "None", "model": "5"}),
    ("", "ChatTemplates", {"model": "5"}),
    ("", "schema_of", {"annotation": "10**5000"}),
    ("", "grammar_of", {"schema": "nested(3000)"}),
    ("", "hub.fetch", {"source": "5"}),
    ("", "hub.remove_download", {"download": "5"}),
    ("", "cache.remove_entry", {"entry": "5"}),
    ("", "quant.nbytes", {"type": "F32", "shape": "5"}),
    ("", "quant.raw_shape", {"type": "8", "shape": "['x']"}),
    ("", "quant.ggml_type", {"type": "Decimal('sNaN')"}),
    ("", "quant.quantize", {"array": "[[1],[1,2]]", "type": "F32"}),
    ("", "quant.dequantize", {"data": "np.array([None]*8)", "type": "F32", "shape": "(16,)"}),
]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HF_HUB_OFFLINE", "PYGGML_CACHE", "HF_HOME"):  # prepare() sets them
            patch.setenv(name, "")
        names = calls.prepare(tmp_path_factory.mktemp("shared"))
        yield names
        names["llm"].close()
        names["loop"].close()


@pytest.mark.slow_except(every=2)
@pytest.mark.parametrize("call", CALLS, ids=str)
def test_it_is_refused_by_name(
    call: Call, prepared: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    case = calls.Case(prepared)
    try:
        assert case.attempt([*call]) in ("InvalidParameterError", "GrammarError", "TokenizerError")
    finally:
        case.close()


@pytest.mark.slow
def test_a_huge_number_of_completions_is_begun_one_by_one(prepared: dict[str, Any]) -> None:
    """Their parameters were once made before the first of them: gigabytes, and minutes in which nothing ended them."""
    began, llm = time.process_time(), prepared["llm"]

    def stop(*_: object) -> None:
        raise InterruptedError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pyggml.generation.batch_generation.Batch._add", stop)
        with pytest.raises(InterruptedError):
            llm.generate_n("x", 2**31 - 1, pyggml.SamplingParams(max_tokens=1, seed=1))
    assert time.process_time() - began < 5


def test_asynchronous_arguments_of_batches(llm: pyggml.LLM) -> None:
    async def stream() -> Any:
        yield "a"

    prompts: Any = stream

    async def progress(*_: int) -> None:
        pass

    with pytest.raises(pyggml.InvalidParameterError, match=r"collect them first, as in \[each async for each in"):
        asyncio.run(llm.agenerate_batch(prompts()))
    with pytest.raises(pyggml.InvalidParameterError, match="progress is a coroutine function, which would never be"):
        llm.generate_batch(["a"], progress=progress)  # type: ignore[arg-type]
