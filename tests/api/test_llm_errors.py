"""Errors of LLM: each is a clear exception, the process survives, and the next call works."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyggml
from pyggml import source
from pyggml.schema.grammar import grammar_of
from pyggml.units import bytes_text

STORY = "Once upon a time"


@pytest.fixture
def llm() -> Iterator[pyggml.LLM]:
    """A shipped model that must still work after the test, unless the test closed it."""
    with pyggml.load(n_threads=1) as llm:
        yield llm


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(pyggml.ModelNotFoundError, match="nothing-here"):
        pyggml.load(tmp_path / "nothing-here.gguf")
    with pytest.raises(FileNotFoundError):
        pyggml.load(tmp_path / "nothing-here.gguf")


def test_directory_names_what_it_holds(tmp_path: Path) -> None:
    with pytest.raises(pyggml.ModelLoadError, match="directory"):
        pyggml.load(tmp_path)
    (tmp_path / "adapter_config.json").write_bytes(b"{}")
    with pytest.raises(pyggml.ModelLoadError, match=r"is an adapter .* load the model that it was made for"):
        pyggml.load(tmp_path)
    (tmp_path / "a.gguf").write_bytes(b"")
    with pytest.raises(pyggml.ModelLoadError, match=r"a\.gguf"):
        pyggml.load(tmp_path)


def test_a_pointer_of_git_lfs_says_how_to_get_the_file(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    for read in (pyggml.load, pyggml.Model):
        with pytest.raises(pyggml.ModelLoadError, match="git lfs pull"):
            read(path)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "model-00001-of-00002.safetensors"])
def test_a_file_of_a_directory_leads_to_the_directory(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"{}")
    with pytest.raises(pyggml.ModelLoadError, match="one file of a checkpoint; pass its directory") as raised:
        pyggml.load(tmp_path / name)
    assert str(raised.value).endswith(str(tmp_path))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"GGUF",
        b"this is plain text, whatever its name says\n" * 100,
        b"GGUF" + (99).to_bytes(4, "little") + bytes(100),
        b"GGUF" + (3).to_bytes(4, "big") + bytes(100),
        b"GGML" + (3).to_bytes(4, "little") + bytes(100),
    ],
    ids=["empty", "magic only", "text", "version 99", "other byte order", "wrong magic"],
)
def test_what_is_no_gguf(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(pyggml.ModelLoadError, match=r"model\.gguf"):
        pyggml.load(path)


def test_truncated_at_fifty_lengths(tmp_path: Path) -> None:
    whole = source.SHIPPED_MODEL.read_bytes()
    path = tmp_path / "model.gguf"
    for i in range(50):
        path.write_bytes(whole[: len(whole) * i // 50])
        with pytest.raises(pyggml.ModelLoadError):
            pyggml.load(path)
    path.write_bytes(whole[:-1])
    with pytest.raises(pyggml.ModelLoadError):
        pyggml.load(path)
    path.write_bytes(whole)
    with pyggml.load(path) as llm:
        assert llm.generate(STORY, max_tokens=2).text


def test_not_a_path() -> None:
    with pytest.raises(pyggml.InvalidParameterError, match="int"):
        pyggml.load(3)  # type: ignore[arg-type]
    with pytest.raises(pyggml.InvalidParameterError, match="NUL"):
        pyggml.load("a\0b.gguf")


def test_absent_device() -> None:
    with pytest.raises(pyggml.DeviceError, match=r"cuda:77.*CPU"):
        pyggml.load(device="cuda:77")


def test_absurd_context_is_refused_before_it_is_allocated() -> None:
    with pytest.raises(pyggml.OutOfMemoryError) as caught:
        pyggml.load(n_ctx=2_000_000_000)
    error = caught.value
    assert isinstance(error, MemoryError)
    assert error.required_bytes > error.available_bytes > 0
    assert bytes_text(error.required_bytes) in str(error)
    assert bytes_text(error.available_bytes) in str(error)


@pytest.mark.parametrize(
    "options",
    [
        {"n_batch": 0},
        {"n_ubatch": 0},
        {"n_ctx": 0},
        {"n_ctx": -1},
        {"n_ctx": 1.5},
        {"n_ctx": 2**40},
        {"n_threads": -1},
        {"cache_type": "q9_9"},
        {"n_batch": -5},
    ],
    ids=str,
)
def test_bad_load_options(options: dict[str, Any]) -> None:
    with pytest.raises(pyggml.InvalidParameterError):
        pyggml.load(**options)


@pytest.mark.slow_except(every=6)
@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"max_tokens": -2}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"temperature": math.nan}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": math.inf}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_p": math.nan}, "top_p"),
        ({"min_p": -0.1}, "min_p"),
        ({"typical_p": 2}, "typical_p"),
        ({"top_k": -1}, "top_k"),
        ({"repeat_penalty": 0}, "repeat_penalty"),
        ({"frequency_penalty": math.nan}, "frequency_penalty"),
        ({"presence_penalty": math.inf}, "presence_penalty"),
        ({"penalty_last_n": -2}, "penalty_last_n"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**32}, "seed"),
        ({"stop": ""}, "stop"),
        ({"stop": ["a", 3]}, "stop"),
        ({"stop_token_ids": [10**6]}, "1000000"),
        ({"logit_bias": {-1: 1.0}}, "-1"),
        ({"logit_bias": {5: math.nan}}, "logit bias"),
        ({"logit_bias": {5: math.inf}}, "logit bias"),
        ({"timeout_s": -1}, "timeout_s"),
        ({"timeout_s": math.nan}, "timeout_s"),
        ({"temprature": 1}, "no parameter 'temprature': did you mean 'temperature' .0 always picks"),
        ({"max_new_tokens": 1}, "no parameter 'max_new_tokens': it is 'max_tokens' here"),
        ({"temperature": "0.5"}, "temperature"),
        ({"ignore_eos": "off"}, "ignore_eos must be True or False"),
        ({"stop_token_ids": [1.5]}, "stop_token_ids"),
        ({"logit_bias": {"a": 1}}, "logit_bias"),
        ({"logit_bias": [1, 2]}, "logit_bias"),
        ({"json_schema": {"a": 1j}}, "JSON"),
        ({"json_schema": '{"type": "string"}\0'}, "NUL"),
        ({"grammar": "root ::= \ud800"}, "surrogate"),
        ({"grammar": 'root ::= "a"', "ignore_eos": True}, "ignore_eos"),
        ({"logit_bias": dict.fromkeys(range(2048), -math.inf), "temperature": 1.0}, "no token"),
        ({"grammar": 'root ::= "a"', "json_schema": {}}, "json_schema"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_bad_sampling_params(llm: pyggml.LLM, params: dict[str, Any], named: str) -> None:
    with pytest.raises(pyggml.InvalidParameterError, match=named):
        llm.generate(STORY, **params)
    assert llm.generate(STORY, max_tokens=2).text


@pytest.mark.slow_except("unclosed", "second line", "undefined", "no root", "deep", "left recursion")
@pytest.mark.parametrize(
    ("grammar", "said"),
    [
        ('root ::= "a" (', "line 1"),
        ('root ::= "a"\nother = "b"', "line 2"),
        ("root ::= missing", "missing"),
        ('start ::= "a"', "root"),
        ("root ::= " + "(" * 10_000, "nested"),
        ('root ::= root "a"', "recursion"),
        ("", "root"),
        ("a ::= " + '")" ' * 60_000 + "\nroot ::= " + "(" * 60_000, "nested"),
        ("root ::= r0\n" + "".join(f"r{i} ::= r{i + 1}\n" for i in range(60_000)) + 'r60000 ::= "a"', "begin"),
        ("root ::= r0\n" + "".join(f"r{i} ::= r{i + 1} | r{i + 1}\n" for i in range(40)) + 'r40 ::= "a"', "ways"),
        ('root ::= "' + "a" * 100_000 + '" {0, 2000}', "column 10: .*repeats"),
        ("root ::= [" + "a-f" * 100_000 + "]{2000}", "column 10: .*repeats"),
    ],
    ids=[
        "unclosed",
        "second line",
        "undefined",
        "no root",
        "deep",
        "left recursion",
        "empty",
        "deep with literals",
        "chain",
        "exponential",
        "long literal, repeated",
        "long class, repeated",
    ],
)
def test_broken_grammars(llm: pyggml.LLM, grammar: str, said: str) -> None:
    with pytest.raises(pyggml.GrammarError, match=said):
        llm.generate(STORY, grammar=grammar)
    assert llm.generate(STORY, max_tokens=2).text


def test_parentheses_in_literals_do_not_nest(llm: pyggml.LLM) -> None:
    grammar = "root ::= " + " | ".join('"(" [(]' for _ in range(300))
    assert llm.generate(STORY, grammar=grammar, max_tokens=5).text == "(("


def test_a_dead_end_in_a_grammar_is_an_error_of_that_request(llm: pyggml.LLM) -> None:
    starts_with_y = [i for i in range(llm.model.vocab.n_tokens) if llm.tokenizer.piece(i).startswith(b"y")]
    with pytest.raises(pyggml.InferError, match=r"no token|sampler"):
        llm.generate(
            STORY, grammar='root ::= "yes" | "yeah"', logit_bias=dict.fromkeys(starts_with_y, -math.inf), max_tokens=20
        )
    assert llm.generate(STORY, max_tokens=2).text


@pytest.mark.parametrize(
    "schema",
    [
        '{"properties": ' * 4_000 + "{}" + "}" * 4_000,
        '{"type": "object", "properties": {"' + "-" * 100_000 + '": {}}}',
    ],
    ids=["nested", "long name"],
)
def test_huge_schemas_do_not_end_the_process(llm: pyggml.LLM, schema: str) -> None:
    outcomes: list[str] = []

    def convert() -> None:
        try:
            outcomes.append(grammar_of(schema))
        except pyggml.GrammarError as error:
            outcomes.append(str(error))

    threading.stack_size(1 << 20)  # an ordinary stack would take a schema that takes a minute
    try:
        worker = threading.Thread(target=convert)
        worker.start()
    finally:
        threading.stack_size(0)
    worker.join()
    assert outcomes
    assert llm.generate(STORY, max_tokens=2).text


def test_huge_templates_do_not_end_the_process(llm: pyggml.LLM) -> None:
    for template in (
        "{{ " + "(" * 5_000 + "1" + ")" * 5_000 + " }}",
        "{% if true %}" * 5_000 + "{% endif %}" * 5_000,
    ):
        try:
            llm.apply_chat_template([{"role": "user", "content": "x"}], chat_template=template)
        except pyggml.InvalidParameterError as error:
            assert "template" in str(error)  # noqa: PT017


@pytest.mark.parametrize("schema", ["{", '{"type": "nonsense"}', '{"$ref": "#/nowhere"}'])
def test_broken_schemas(llm: pyggml.LLM, schema: str) -> None:
    with pytest.raises(pyggml.GrammarError):
        llm.generate(STORY, json_schema=schema)


def test_bad_prompts(llm: pyggml.LLM) -> None:
    with pytest.raises(pyggml.EmptyPromptError):
        llm.generate("")
    with pytest.raises(pyggml.EmptyPromptError):
        llm.generate([])
    with pytest.raises(pyggml.InvalidParameterError, match=r"NUL.*3"):
        llm.generate("abc\0def")
    with pytest.raises(pyggml.InvalidParameterError, match="surrogate"):
        llm.generate("abc\ud800")
    n_vocab = llm.model.vocab.n_tokens
    for ids in ([n_vocab], [-1], [5, 2**40]):
        with pytest.raises(pyggml.InvalidParameterError):
            llm.generate(ids)
    with pytest.raises(pyggml.InvalidParameterError):
        llm.generate([1.5])  # type: ignore[list-item]
    with pytest.raises(pyggml.ContextOverflowError, match=str(llm.n_ctx)):
        llm.generate([5] * (llm.n_ctx + 1))
    with pytest.raises(pyggml.ContextOverflowError):
        llm.logits([5] * (llm.n_ctx + 1))
    with pytest.raises(pyggml.InvalidParameterError):
        llm.detokenize([n_vocab])
    with pytest.raises(pyggml.InvalidParameterError, match="not str"):
        llm.detokenize("Once")  # type: ignore[arg-type]
    with pytest.raises(pyggml.InvalidParameterError, match="text or token ids, not int"):
        llm.generate(5)  # type: ignore[arg-type]
    with pytest.raises(pyggml.InvalidParameterError, match="stop_token_ids must be integers, not text"):
        llm.generate("Once", stop_token_ids=["</s>"])  # type: ignore[list-item]
    with pytest.raises(pyggml.InvalidParameterError, match="completion must be True or False"):
        asyncio.run(llm.forward("Once", 5, completion="yes"))  # type: ignore[call-overload]
    assert llm.generate(STORY, max_tokens=2).text


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (["Once", "Twice"], "list of prompts: generate_batch takes those"),
        ([{"role": "user", "content": "Once"}], r"list of messages: chat\(messages\) takes those"),
        (b"Once", "not bytes"),
        ({"prompt": "Once"}, "not dict"),
    ],
)
def test_what_other_libraries_take_for_a_prompt(llm: pyggml.LLM, prompt: Any, message: str) -> None:
    for call in (llm.generate, llm.stream, llm.logits, lambda each: llm.generate_n(each, 2)):
        with pytest.raises(pyggml.InvalidParameterError, match=message):
            call(prompt)


def test_bad_chats(llm: pyggml.LLM) -> None:
    with pytest.raises(pyggml.InvalidParameterError):
        llm.apply_chat_template([{"content": "no role"}])
    with pytest.raises(pyggml.InvalidParameterError):
        llm.apply_chat_template([{"role": "user", "content": object()}])
    with pytest.raises(pyggml.InvalidParameterError):
        llm.apply_chat_template([{"role": "user", "content": "x"}], chat_template="{% if %}")
    with pytest.raises(pyggml.InvalidParameterError, match="no thanks"):
        llm.apply_chat_template([{"role": "user", "content": "x"}], chat_template="{{ raise_exception('no thanks') }}")


def test_chat_text_is_taken_as_it_is(llm: pyggml.LLM) -> None:
    assert "\\u0000" in llm.apply_chat_template([{"role": "user", "content": "\\u0000"}])
    with pytest.raises(pyggml.InvalidParameterError, match="NUL"):
        llm.apply_chat_template([{"role": "user", "content": "a\0b"}])


def test_logits_that_cannot_fit_are_refused(llm: pyggml.LLM) -> None:
    with pytest.raises(pyggml.ContextOverflowError):
        llm.logits(np.full(20_000_000, 5))


def test_a_model_may_be_loaded_by_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.gguf").write_bytes(source.SHIPPED_MODEL.read_bytes())
    monkeypatch.chdir(tmp_path)
    with pyggml.Model("model.gguf") as model:
        monkeypatch.chdir("/")
        pyggml.Context(model, n_ctx=64).close()


def test_use_after_close(llm: pyggml.LLM) -> None:
    llm.close()
    llm.close()
    uses: list[Callable[[], object]] = [
        lambda: llm.generate(STORY),
        lambda: llm.stream(STORY),
        lambda: llm.logits(STORY),
        lambda: llm.tokenize(STORY),
        lambda: llm.detokenize([5]),
        lambda: llm.apply_chat_template([{"role": "user", "content": "x"}]),
        llm.reset,
        llm.stats,
    ]
    for use in uses:
        with pytest.raises(pyggml.ClosedError):
            use()


def test_close_while_another_thread_generates(llm: pyggml.LLM) -> None:
    outcome: list[BaseException | None] = []

    def generate() -> None:
        try:
            while True:
                llm.generate(STORY, max_tokens=400, ignore_eos=True)
        except pyggml.ClosedError as error:
            outcome.append(error)

    worker = threading.Thread(target=generate)
    worker.start()
    time.sleep(0.1)
    llm.close()
    worker.join(100)
    assert not worker.is_alive()
    assert len(outcome) == 1


def test_close_with_a_queue(llm: pyggml.LLM) -> None:
    streams = [llm.stream(STORY, max_tokens=300, ignore_eos=True) for _ in range(5)]
    llm.close()
    for stream in streams:
        with pytest.raises(pyggml.ClosedError):
            stream.finish()


def test_a_stream_keeps_its_model_alive() -> None:
    assert len(pyggml.load().stream(STORY, max_tokens=30).finish().token_ids) == 30


def _run(code: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


@pytest.mark.slow
def test_fork_in_between() -> None:
    """The child gets an error, not a hang; the parent goes on; and the child can load its own."""
    child = _run(
        """
        import os, sys
        import pyggml
        llm = pyggml.load()
        llm.generate("The dog", max_tokens=3)
        stream = llm.stream("The dog", max_tokens=300)
        pid = os.fork()
        if pid == 0:
            for use in (lambda: llm.generate("The cat"), lambda: llm.tokenize("x"), lambda: next(stream)):
                try:
                    use()
                    os._exit(1)
                except pyggml.EngineError as error:
                    assert "fork" in str(error)
            with pyggml.load() as own:
                assert own.generate("The dog", max_tokens=3).text
            sys.exit(0)
        _, status = os.waitpid(pid, 0)
        assert status == 0, status
        assert stream.finish().text
        print(llm.generate("The dog", max_tokens=3).text)
        """
    )
    out, err = child.communicate(timeout=240)
    assert child.returncode == 0, err
    assert out.strip()


@pytest.mark.slow_except("logits")
@pytest.mark.parametrize("what", ["decode", "prefill", "logits"])
def test_ctrl_c(what: str) -> None:
    """KeyboardInterrupt arrives at once, inside a long prompt too, and the next call works."""
    child = _run(
        f"""
        import threading, time, os, signal
        import pyggml
        llm = pyggml.load(n_ctx=16384, n_batch=16384, n_threads=1)
        prompt = [5] * 16000
        work = dict(
            decode=lambda: [llm.generate("The dog", max_tokens=16000, ignore_eos=True)],
            prefill=lambda: llm.generate(prompt),
            logits=lambda: llm.logits(prompt[:8000]),
        )[{what!r}]
        interrupted = []
        def interrupt():
            time.sleep(0.3)
            interrupted.append(time.process_time())  # which stands still while other programs have the core
            os.kill(os.getpid(), signal.SIGINT)
        try:
            threading.Thread(target=interrupt).start()
            work()
            print("finished by itself")
        except KeyboardInterrupt:
            print("interrupted after", round(time.process_time() - interrupted[0], 1))
        assert llm.generate("The dog", max_tokens=2).text
        """
    )
    out, err = child.communicate(timeout=240)
    assert child.returncode == 0, err
    assert out.startswith("interrupted after")
    assert float(out.split()[-1]) < 2.0


@pytest.mark.slow
@pytest.mark.parametrize("what", ["load", "stream"])
def test_ctrl_c_leaves_nothing_behind(what: str) -> None:
    child = _run(
        f"""
        import gc, signal, time
        import pyggml
        from pyggml import lib
        llm = pyggml.load(n_threads=1)
        kept = []

        def stream():
            for _ in llm.stream("The dog", max_tokens=400, ignore_eos=True):
                pass

        work = dict(load=lambda: pyggml.load(n_threads=1).close(), stream=stream)[{what!r}]
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        for n in range(20):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.005 + 0.002 * n)
                while True:
                    work()
            except KeyboardInterrupt as error:
                kept.append(error)
        started = time.process_time()
        llm.generate("The dog", max_tokens=2)
        assert time.process_time() - started < 5
        llm.close()
        kept.clear()
        gc.collect()
        counts = [lib.pyg_live_handles(kind) for kind in (lib.PYG_HANDLE_CONTEXT, lib.PYG_HANDLE_REQUEST)]
        assert counts == [0, 0], counts
        assert lib.pyg_live_handles(lib.PYG_HANDLE_MODEL) == 1  # llm's own, closed
        """
    )
    _, err = child.communicate(timeout=240)
    assert child.returncode == 0, err


@pytest.mark.slow
def test_exit_with_work_in_flight() -> None:
    child = _run(
        """
        import pyggml
        llm = pyggml.load()
        streams = [llm.stream("The dog", max_tokens=400, ignore_eos=True) for _ in range(3)]
        next(streams[0])
        """
    )
    _, err = child.communicate(timeout=240)
    assert child.returncode == 0, err
    assert err == ""


@pytest.mark.slow
def test_sigterm_ends_the_process() -> None:
    child = _run(
        """
        import pyggml
        llm = pyggml.load()
        print("ready", flush=True)
        while True:
            llm.generate("The dog", max_tokens=400, ignore_eos=True)
        """
    )
    assert child.stdout is not None
    child.stdout.readline()
    os.kill(child.pid, signal.SIGTERM)
    child.communicate(timeout=240)
    assert child.returncode == -signal.SIGTERM


@pytest.mark.parametrize(
    "params",
    [
        {"stop_token_ids": [3, 10**6]},
        {"allowed_token_ids": [10**6]},
        {"logit_bias": {10**6: 1.0}},
        {"bad_words": [[10**6]]},
    ],
)
def test_a_token_outside_the_vocabulary_is_told_with_its_parameter(llm: pyggml.LLM, params: dict[str, Any]) -> None:
    (name,) = params
    with pytest.raises(pyggml.InvalidParameterError, match=f"{name} has the token id 1000000, which is outside"):
        llm.generate("Once", max_tokens=1, **params)
