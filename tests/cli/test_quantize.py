"""``pyggml quantize``, ``pyggml imatrix`` and ``pyggml perplexity``."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.checkpoints.hf_llama import HFLlama
from support.command import called, fails, pyggml
from support.terminal import Terminal

import pyggml as library
from pyggml.gguf import GGUFReader
from pyggml.source import SHIPPED_MODEL

TEXT = "Once upon a time there was a little dog who lived in a red house, and the house was small. "


@pytest.fixture(scope="module")
def floats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GGUF file that one thread quantises to IQ3_S for seconds."""
    directory = tmp_path_factory.mktemp("floats")
    sizes = {"n_embd": 256, "n_ff": 1024, "n_layer": 4, "n_head": 4, "n_head_kv": 4, "head_dim": 64}
    library.convert(HFLlama(**sizes).write(directory / "hf", stored="BF16"), directory / "floats.gguf")
    return directory / "floats.gguf"


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(TEXT * 30)
    return path


@pytest.fixture(scope="module")
def long_text(text: Path) -> Path:
    path = text.with_name("long.txt")
    path.write_text(TEXT * 20_000)
    return path


# --- quantize ---------------------------------------------------------------------------------------------------


def test_quantize_says_what_became_of_it(floats: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    done = pyggml("quantize", floats, out, "q4_k_m")
    assert (done.code, done.err) == (0, "")
    assert f"{out}: llama, 4.33 million weights of 4.8" in done.out
    assert "tensors: 9 F32, 25 Q4_K, 5 Q6_K\n" in done.out


def test_quantize_names_its_options(floats: Path, tmp_path: Path) -> None:
    """Errors name the command's options, not the library's parameters."""
    out = tmp_path / "out.gguf"
    assert fails(1, "quantize", SHIPPED_MODEL, out, "q4_0").endswith("or pass --requantize\n")
    assert fails(1, "quantize", floats, out, "iq2_xxs").endswith("give an importance matrix (--imatrix FILE)\n")


@pytest.mark.slow
def test_quantize_takes_what_the_library_does(floats: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    rules = ("--tensor-type", "attn_v=q6_k", "--tensor-type", "ffn_(up|gate)=q5_0", "--keep", "attn_k")
    done = json.loads(pyggml("quantize", floats, out, "Q8_0", *rules, "--n-threads", 2, "--json").out)
    assert done["path"] == str(out)
    assert done["n_bytes"] == out.stat().st_size
    with GGUFReader(out) as reader:
        types = {name: tensor.type.name for name, tensor in reader.tensors.items()}
    assert {types[f"blk.2.{name}.weight"] for name in ("ffn_up", "ffn_gate")} == {"Q5_0"}
    assert [types[f"blk.0.attn_{name}.weight"] for name in "qkv"] == ["Q8_0", "BF16", "Q6_K"]


@pytest.mark.slow
def test_quantize_shows_how_far_it_is_and_stops_at_ctrl_c(floats: Path, tmp_path: Path) -> None:
    arguments = ("quantize", floats, tmp_path / "out.gguf", "iq3_s", "--n-threads", 1)
    with Terminal(*arguments, columns=60) as terminal:
        terminal.wait_for_match(r"quantising [━╸╺]+ +[1-9]\d?% [\d.]+ [kM]B/s \d\d:\d\d")
        terminal.send("\x03")
        assert terminal.wait_for_exit() == 130
        assert "quantising" not in terminal.text
        assert terminal.shows_cursor
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("q4", "q4_k_m, q4_k_s, q4_1 or q4_0"),
        ("Q4_K", "q4_k_m or q4_k_s"),
        ("int4", "q4_k_m, q4_k_s or q4_0"),
        ("4bit", "q4_k_m, q4_k_s or q4_0"),
        ("int8", "q8_0"),
        ("fp16", "f16 or bf16"),
        ("float32", "f32"),
        ("bf-16", "bf16"),
    ],
)
def test_types_by_other_names(typed: str, meant: str, tmp_path: Path) -> None:
    expected = rf"did you mean {meant}( or f16)?\?"
    assert re.search(expected, fails(2, "quantize", SHIPPED_MODEL, tmp_path / "out.gguf", typed))
    for call in (library.quantize, library.convert):
        with pytest.raises(library.InvalidParameterError, match=expected):
            call(SHIPPED_MODEL, tmp_path / "out.gguf", typed)


def test_quantize_with_its_arguments_as_other_tools_have_them() -> None:
    expected = "type 'pyggml quantize model.gguf model-q4_k_m.gguf q4_k_m'"
    assert f"OUT is missing: {expected}" in fails(2, "quantize", "model.gguf", "q4_k_m")
    expected = "type 'pyggml quantize model.gguf out.gguf q4_k_m'"
    assert f"TYPE comes last: {expected}" in fails(2, "quantize", "model.gguf", "q4_k_m", "out.gguf")
    assert "Missing argument 'OUT'" in fails(2, "quantize", "model.gguf")


@pytest.mark.slow_except("f16")
@pytest.mark.parametrize("type", ["q4_k_m", "f16"])
def test_a_dry_run_says_what_a_run_writes(floats: Path, tmp_path: Path, type: str) -> None:
    out = tmp_path / "out.gguf"
    planned = json.loads(called("quantize", floats, out, type, "--dry-run", "--json").out)
    assert not out.exists()
    assert json.loads(called("quantize", floats, out, type, "--json").out) == planned
    assert planned["n_bytes"] == out.stat().st_size
    assert called("quantize", floats, out, type, "--dry-run").out.endswith(f"tensors: {counts(planned['types'])}\n")
    shown = called("quantize", "--dry-run", floats, type.upper()).out
    assert shown.startswith(f"floats-{type}.gguf: llama, 4.33 million weights")
    assert "nothing was written" in shown
    assert not Path(f"floats-{type}.gguf").exists()
    planned = json.loads(called("convert", floats.parent / "hf", tmp_path / "b.gguf", type, "--dry-run", "--json").out)
    assert json.loads(called("convert", floats.parent / "hf", tmp_path / "b.gguf", type, "--json").out) == planned


def counts(types: dict[str, int]) -> str:
    return ", ".join(f"{n} {name}" for name, n in types.items())


def test_quantize_refuses_in_one_line(floats: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    assert "Missing argument 'TYPE'. Types: f32, f16, " in fails(2, "quantize", floats, out)
    assert "'q99' is not one of" in fails(2, "quantize", floats, out, "q99")
    assert "PATTERN=TYPE" in fails(2, "quantize", floats, out, "q8_0", "--tensor-type", "attn_v")
    assert "q99" in fails(1, "quantize", floats, out, "q8_0", "--tensor-type", "attn_v=q99")
    assert "there is no model file at" in fails(1, "quantize", tmp_path / "no.gguf", out, "q8_0")
    assert "already quantised" in fails(1, "quantize", SHIPPED_MODEL, out, "q4_0")
    assert "importance" in fails(1, "quantize", floats, out, "iq2_xxs")
    assert "no.imatrix" in fails(1, "quantize", floats, out, "q4_0", "--imatrix", tmp_path / "no.imatrix")
    assert "is also an input: name another output file" in fails(1, "quantize", floats, floats, "q8_0", "--force")
    assert list(tmp_path.iterdir()) == []
    out.write_text("precious")
    assert "--force replaces it" in fails(1, "quantize", floats, out, "q8_0")
    assert out.read_text() == "precious"


# --- imatrix ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("type", ["q4_0", pytest.param("iq2_xs", marks=pytest.mark.slow)])
def test_what_imatrix_writes_is_what_quantize_needs(floats: Path, text: Path, tmp_path: Path, type: str) -> None:
    matrix = tmp_path / "i.gguf"
    done = pyggml("imatrix", text, matrix, "-m", floats, "--n-ctx", 64, "--n-chunks", 3)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"{matrix}: importances of 28 tensors, from 3 chunks of 64 tokens, in ")
    assert pyggml("quantize", floats, tmp_path / "out.gguf", type, "--imatrix", matrix).code == 0
    hf = floats.parent / "hf"
    assert pyggml("convert", hf, tmp_path / "same.gguf", "--outtype", type, "--imatrix", matrix).code == 0
    more = json.loads(
        pyggml(
            "imatrix", "-", tmp_path / "both.gguf", "-m", floats, "-c", 64, "--merge", matrix, "--json", stdin=TEXT * 4
        ).out
    )
    assert more["n_chunks"] > 3
    assert library.ImportanceMatrix.load(more["path"]).n_chunks == more["n_chunks"]


@pytest.mark.slow
def test_imatrix_uses_the_shipped_model_and_says_so(text: Path, tmp_path: Path) -> None:
    done = pyggml("imatrix", text, tmp_path / "i.gguf", "-c", 128)
    assert done.code == 0
    assert "small demonstration model" in done.err


@pytest.mark.slow
def test_imatrix_stops_at_ctrl_c_and_leaves_nothing(long_text: Path, tmp_path: Path) -> None:
    with Terminal("imatrix", long_text, tmp_path / "i.gguf", columns=60) as terminal:
        terminal.wait_for_match(r"reading [━╸╺]+ +\d+% [\d.]+ [kM]?B/s \d\d:\d\d")
        terminal.send("\x03")
        assert terminal.wait_for_exit() == 130
        assert "reading" not in terminal.text
        assert terminal.shows_cursor
    assert list(tmp_path.iterdir()) == []


def test_imatrix_refuses_in_one_line(floats: Path, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "i.gguf"
    assert "Missing argument 'OUT'" in fails(2, "imatrix", text)
    assert "15 is not in the range" in fails(2, "imatrix", text, out, "--n-ctx", 15)
    assert "no text file at" in fails(1, "imatrix", tmp_path / "no.txt", out, "-m", floats)
    assert "no model file" in fails(1, "imatrix", text, out, "-m", tmp_path / "no.gguf")
    assert "no.imatrix" in fails(1, "imatrix", text, out, "-m", floats, "--merge", tmp_path / "no.imatrix")
    assert "tokens" in fails(1, "imatrix", "-", out, "-m", floats, stdin="too short")
    assert "is also an input: name another output file" in fails(1, "imatrix", text, text, "-m", floats, "--force")
    (tmp_path / "latin-1.txt").write_bytes("é".encode("latin-1") * 3000)
    assert "cannot be read as text" in fails(1, "imatrix", tmp_path / "latin-1.txt", out, "-m", floats)
    assert [path.name for path in tmp_path.iterdir()] == ["latin-1.txt"]


# --- perplexity -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_perplexity_is_the_librarys(text: Path) -> None:
    options = ("-m", SHIPPED_MODEL, "-c", 128, "--n-chunks", 2, "-t", 1)
    done = pyggml("perplexity", text, *options)
    assert done.code == 0
    assert re.fullmatch(r"\d+\.\d{4} ± \d+\.\d{4}\n", done.out)
    assert re.fullmatch(r"126 tokens in 2 chunks of 128, in .* s\n", done.err)
    found = json.loads(pyggml("perplexity", text, *options, "--json").out)
    expected = library.perplexity(SHIPPED_MODEL, text, n_ctx=128, n_chunks=2, n_threads=1)
    assert found["value"] == pytest.approx(expected.value, rel=1e-3)
    assert (found["n_tokens"], found["n_chunks"], found["n_ctx"]) == (expected.n_tokens, 2, 128)
    assert float(done.out.split()[0]) == pytest.approx(expected.value, rel=1e-3)


@pytest.mark.slow
def test_perplexity_stops_at_ctrl_c(long_text: Path) -> None:
    with Terminal("perplexity", long_text, columns=60) as terminal:
        terminal.wait_for_match("reading")
        terminal.send("\x03")
        assert terminal.wait_for_exit() == 130
        assert "reading" not in terminal.text
        assert terminal.shows_cursor


@pytest.mark.slow
def test_perplexity_refuses_in_one_line(text: Path, tmp_path: Path) -> None:
    assert "Missing argument 'TEXT'" in fails(2, "perplexity")
    assert "no text file at" in fails(1, "perplexity", tmp_path, "-m", SHIPPED_MODEL)
    assert "no model file" in fails(1, "perplexity", text, "-m", tmp_path / "no.gguf")
    assert "tokens" in fails(1, "perplexity", "-", "-m", SHIPPED_MODEL, stdin="too short")
    assert "invalid start byte at byte 3" in fails(1, "perplexity", "-", stdin="abc\udcff", errors="surrogateescape")
    assert "cuda" in fails(1, "perplexity", text, "-m", SHIPPED_MODEL, "--device", "cuda:9")
