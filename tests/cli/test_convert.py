"""``pyggml convert`` and ``pyggml cache``, and common behaviour of commands that write files."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from support.checkpoints.hf_llama import HFLlama
from support.command import called, fails, interrupted, pyggml
from support.terminal import Terminal

from pyggml._native import quantization_mix
from pyggml.gguf import GGUFReader
from pyggml.options.file_types import FILE_TYPES
from pyggml.units import bytes_text, count_text, seconds_text


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face directory that is converted at once."""
    return HFLlama().write(tmp_path_factory.mktemp("tiny") / "tiny-hf", stored="BF16")


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that one thread converts to IQ3_S for seconds."""
    sizes = {"n_embd": 256, "n_ff": 1024, "n_layer": 4, "n_head": 4, "n_head_kv": 4, "head_dim": 64}
    return HFLlama(**sizes).write(tmp_path_factory.mktemp("long") / "long-hf", stored="BF16")


# --- in common --------------------------------------------------------------------------------------------------


def test_the_types_are_those_of_the_engine() -> None:
    assert sorted(FILE_TYPES) == sorted(quantization_mix.FILE_TYPES)


def test_numbers_are_short() -> None:
    assert [bytes_text(n) for n in (0, 999, 1000, 3_812_000, 999_600, 2.2e9, 1e12)] == [
        *("0 B", "999 B", "1.00 kB", "3.81 MB", "1.00 MB", "2.20 GB", "1.00 TB")
    ]
    assert [count_text(n) for n in (7, 96_320, 1_235_814_432)] == ["7", "96.3 thousand", "1.24 billion"]
    assert [seconds_text(s) for s in (0.123, 9.44, 12.3, 59.6, 83.2, 4000)] == [
        *("0.12 s", "9.4 s", "12 s", "1 min 0 s", "1 min 23 s", "1 h 6 min")
    ]


# --- convert ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_convert_says_what_became_of_it(tiny: Path, tmp_path: Path) -> None:
    done = pyggml("convert", tiny, tmp_path / "out.gguf")
    assert (done.code, done.err) == (0, "")
    assert f"{tmp_path / 'out.gguf'}: llama, 96.3 thousand weights of 16.1 bits each, 200 kB, in " in done.out
    assert "tensors: 16 BF16, 5 F32\n" in done.out
    assert "note: 9 rows of the model's embedding have no token" in done.out
    with GGUFReader(tmp_path / "out.gguf") as reader:
        assert reader.metadata["general.architecture"] == "llama"


@pytest.mark.slow
def test_convert_as_json(tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    done = json.loads(pyggml("convert", tiny, out, "--outtype", "Q8_0", "--n-threads", 1, "--json").out)
    assert done["path"] == str(out)
    assert done["types"] == {"F32": 5, "Q8_0": 16}
    assert done["n_bytes"] == out.stat().st_size
    assert len(done["notes"]) == 1


def test_convert_takes_the_type_as_the_library_does(tiny: Path, tmp_path: Path) -> None:
    assert json.loads(called("convert", tiny, tmp_path / "a.gguf", "q8_0", "--json").out)["types"]["Q8_0"] == 16
    assert "choose one" in fails(2, "convert", tiny, tmp_path / "b.gguf", "q8_0", "--outtype", "q4_0")
    assert "did you mean q4_k_m or q4_k_s?" in fails(2, "convert", tiny, tmp_path / "b.gguf", "--outtype", "Q4_K")


@pytest.mark.slow
def test_convert_shows_how_far_it_is_on_a_terminal(long: Path, tmp_path: Path) -> None:
    for columns in (40, 200):
        arguments = ("convert", long, tmp_path / f"{columns}.gguf", "--outtype", "q5_k_m")
        with Terminal(*arguments, columns=columns) as terminal:
            terminal.wait_for_match(r"^converting [━╸╺]+ +[1-9]\d?% [\d.]+ [kM]B/s \d\d:\d\d$")
            assert terminal.wait_for_exit() == 0
            assert "converting" not in terminal.text
            assert terminal.shows_cursor
            assert terminal.shows("4.33 million weights")


@pytest.mark.slow
def test_convert_stops_at_ctrl_c_and_leaves_nothing(long: Path, tmp_path: Path) -> None:
    arguments = ("convert", long, tmp_path / "out.gguf", "--outtype", "iq3_s", "--n-threads", 1)
    done = interrupted(*arguments, once=lambda: list(tmp_path.iterdir()))
    assert (done.code, done.out, done.err.strip()) == (130, "", "")
    assert list(tmp_path.iterdir()) == []
    with Terminal(*arguments) as terminal:
        terminal.wait_for_match("converting")
        terminal.send("\x03")
        assert terminal.wait_for_exit() == 130
        assert "converting" not in terminal.text
        assert terminal.shows_cursor
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_convert_told_to_end_leaves_nothing(long: Path, tmp_path: Path, number: signal.Signals) -> None:
    arguments = ("convert", long, tmp_path / "out.gguf", "--outtype", "iq3_s", "--n-threads", 1)
    done = interrupted(*arguments, once=lambda: list(tmp_path.iterdir()), by=number)
    assert (done.code, done.out, done.err) == (128 + number, "", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_convert_replaces_a_file_only_when_told_to(tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    out.write_text("precious")
    assert f"{out} exists: --force replaces it" in fails(1, "convert", tiny, out)
    assert out.read_text() == "precious"
    assert pyggml("convert", tiny, out, "--force").code == 0
    assert out.read_bytes()[:4] == b"GGUF"


def test_convert_looks_at_the_output_first(long: Path, tmp_path: Path) -> None:
    assert "is a directory: name a file in it" in fails(1, "convert", long, tmp_path)
    assert f"there is no directory {tmp_path / 'no'}" in fails(1, "convert", long, tmp_path / "no" / "out.gguf")
    source = long / "config.json"
    os.link(source, tmp_path / "config.json")
    assert "exists: --force" in fails(1, "convert", long, tmp_path / "config.json")


@pytest.mark.slow
def test_convert_refuses_in_one_line(tiny: Path, long: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    assert "Missing argument 'DIRECTORY'" in fails(2, "convert")
    assert "Missing argument 'OUT'" in fails(2, "convert", tiny)
    assert "'--outtype': 'q99'" in fails(2, "convert", tiny, out, "--outtype", "q99")
    assert "--n-threads" in fails(2, "convert", tiny, out, "--n-threads", 0)
    assert "there is no" in fails(1, "convert", tmp_path / "nowhere", out)
    assert "importance matrix" in fails(1, "convert", long, out, "--outtype", "iq2_s")
    assert "config.json" in fails(1, "convert", tmp_path, out)
    assert list(tmp_path.iterdir()) == []
