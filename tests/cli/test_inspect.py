"""``pyggml inspect``: the readable report, and JSON."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from support.checkpoints import models
from support.checkpoints.hf_llama import HFLlama
from support.command import called, fails, pyggml
from support.terminal import Terminal

import pyggml as library
from pyggml.cli.program import with_option_names
from pyggml.diagnostics.sections import printable
from pyggml.source import SHIPPED_MODEL
from pyggml.units import ranges

BAR = re.compile(r"^  ([\w -]+?) +(\d+|<1)% +([\d.]+ k?M?G?B)( [█▏▎▍▌▋▊▉]+)?$", re.MULTILINE)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return HFLlama().write(tmp_path_factory.mktemp("inspect") / "tiny-hf", stored="BF16")


@pytest.fixture(scope="module")
def cut_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that ends inside its weights."""
    path = tmp_path_factory.mktemp("cut") / "cut.gguf"
    path.write_bytes(SHIPPED_MODEL.read_bytes()[:-100_000])
    return path


def lines(text: str, heading: str) -> list[str]:
    """The lines below a heading."""
    return text[text.index(f"\n{heading}\n") :].split("\n\n")[0].strip().splitlines()[1:]


@pytest.mark.slow
def test_the_shipped_model(tmp_path: Path) -> None:
    done = pyggml("inspect", cwd=tmp_path)
    assert done.code == 0
    assert "no MODEL given: using the small demonstration model" in done.err
    assert re.search(r"^  format +GGUF, 1 file, 3\.\d\d MB$", done.out, re.MULTILINE)
    assert re.search(r"^  stored as +Q8_0, [89]\.\d+ bits each$", done.out, re.MULTILINE)
    assert re.search(r"^  ends at +.*<\|im_end\|> \(\d+\)", done.out, re.MULTILINE)
    assert done.out.endswith("\nNo problems found.\n")
    assert "\x1b" not in done.out


@pytest.mark.slow
def test_a_model_without_a_template(tmp_path: Path) -> None:
    """The remark, and the error of a chat, tell what to type."""
    vocabulary = models.byte_vocabulary("<|im_start|>")
    del vocabulary["tokenizer.chat_template"]
    path = models.write_llama(tmp_path / "base.gguf", vocabulary)
    remark = "\n".join(lines(called("inspect", path, env={"COLUMNS": "400"}).out, "1 remark"))
    error = fails(1, "chat", "-m", path, stdin="Hi\n")
    for text in (remark, error):
        assert "--chat-template 'chatml' fits its vocabulary" in text
        assert "use pyggml generate" in text
    assert pyggml("chat", "-m", path, "--chat-template", "chatml", "--max-tokens", "3", stdin="Hi\n").code == 0


def test_the_picture_shows_where_the_bytes_are() -> None:
    report = library.inspect()
    out = called("inspect", SHIPPED_MODEL, env={"COLUMNS": "100"}).out
    shown = BAR.findall("\n".join(lines(out, "Size by component")))
    assert [name for name, *_ in shown] == [part.name for part in report.parts]
    for (_, percent, _, bar), part in zip(shown, report.parts, strict=True):
        share = part.n_bytes / report.n_bytes
        assert percent == ("<1" if share < 0.005 else f"{100 * share:.0f}")
        assert len(bar.strip()) == pytest.approx(48 * share, abs=1.01)
    assert [name for name, *_ in BAR.findall("\n".join(lines(out, "Types")))] == [each.name for each in report.types]


def test_json_is_the_librarys_report(directory: Path) -> None:
    for source in (SHIPPED_MODEL, directory):
        found = json.loads(called("inspect", source, "--json").out)
        assert found == json.loads(json.dumps(library.inspect(source).to_dict()))


@pytest.mark.slow
def test_it_shows_what_the_report_says_as_text(directory: Path, cut_file: Path) -> None:
    """Bars and the command's own words aside: both are made of the same sections."""
    for source in (SHIPPED_MODEL, directory, cut_file):
        shown = re.sub("[█▏▎▍▌▋▊▉]", "", pyggml("inspect", source).out)
        expected = with_option_names(str(library.inspect(source)))
        assert [line.split() for line in shown.splitlines()] == [line.split() for line in expected.splitlines()]


def test_a_directory(directory: Path) -> None:
    done = called("inspect", directory)
    assert (done.code, done.err) == (0, "")
    assert re.search(r"^  format +Hugging Face directory, 1 file, 1\d\d kB$", done.out, re.MULTILINE)
    assert re.search(r"^  imported as +BF16$", done.out, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("columns", [40, 200])
def test_it_fits_the_terminal(directory: Path, columns: int) -> None:
    with Terminal("inspect", directory, "--estimate", columns=columns) as terminal:
        assert terminal.wait_for_exit() == 0
        rows = terminal.rows
    assert max(map(len, rows)) <= columns
    assert not any(row and row.strip() in ("GB", "MB", "kB", "B") for row in rows)  # no number is torn from its unit
    assert sum(bool(BAR.match(row)) for row in rows) >= 6
    assert any(re.fullmatch(r"  total +[\d.]+ MB", row) for row in rows)
    assert terminal.styles


@pytest.mark.slow
def test_no_colours_where_nobody_wants_them() -> None:
    with Terminal("inspect", SHIPPED_MODEL, env={"NO_COLOR": "1"}) as terminal:
        assert terminal.wait_for_exit() == 0
    assert terminal.styles <= {"1", "2"}  # bold and dim


def test_problems_are_shown_and_are_the_exit_code(cut_file: Path) -> None:
    done = called("inspect", cut_file)
    assert done.code == 1
    assert re.search(r"^\d+ problems?\n  error +", done.out, re.MULTILINE)
    assert re.search(r"^  loads +no: ", done.out, re.MULTILINE)
    found = called("inspect", cut_file, "--json")
    assert found.code == 1
    assert json.loads(found.out)["problems"][0]["severity"] == "error"


def test_what_a_file_says_does_not_reach_the_terminal_as_it_is(tmp_path: Path) -> None:
    vocabulary = models.byte_vocabulary("<[red]\x1b[31m\x07>")
    evil = {"general.name": "[red]\x1b]0;title\x07name", "tokenizer.ggml.padding_token_id": models.N_BYTE_VOCAB}
    path = models.write_llama(tmp_path / "evil.gguf", {**vocabulary, **evil})
    done = called("inspect", path)
    assert done.out.startswith("[red]\\x1b]0;title\\x07name\n")
    assert "pad <[red]\\x1b[31m\\x07> (261)" in " ".join(done.out.split())
    assert not {"\x1b", "\x07"} & set(done.out)


def test_estimates_are_the_librarys() -> None:
    options = ("--n-ctx", 1024, "--n-parallel", 2, "--cache-type", "q8_0", "--device", "cpu")
    out = called("inspect", SHIPPED_MODEL, *options).out
    assert "\nMemory, 1,024 cells of q8_0 for 2 requests\n" in out
    expected = library.inspect(SHIPPED_MODEL).estimate(n_ctx=1024, n_parallel=2, cache_type="q8_0", device="cpu")
    found = json.loads(called("inspect", SHIPPED_MODEL, *options, "--json").out)["estimates"]
    assert [each["n_ctx"] for each in found] == [1024]
    assert found[0]["total_bytes"] == expected.total_bytes
    assert found[0]["suggestions"]["n_ctx"] == expected.suggestions.n_ctx
    assert found[0]["fits"]
    assert re.search(r"^  fits +yes$", out, re.MULTILINE)


def test_one_estimate_for_each_type(directory: Path) -> None:
    done = called("inspect", directory, "--outtype", "q8_0", "--outtype", "Q4_0", "--json")
    found = json.loads(done.out)["estimates"]
    assert [each["outtype"] for each in found] == ["q8_0", "q4_0"]
    assert found[0]["weights_bytes"] > found[1]["weights_bytes"]


def test_what_does_not_fit_gets_suggestions() -> None:
    done = called("inspect", SHIPPED_MODEL, "--n-ctx", 2_000_000_000, "--device", "cpu")
    assert done.code == 0  # nothing is wrong with the model
    assert re.search(r"^  fits +no: [\d.]+ [TG]B on CPU too little$", done.out, re.MULTILINE)
    assert re.search(r"^  longest context +[\d,]+ cells \(--n-ctx \d+\)$", done.out, re.MULTILINE)


def test_no_estimate_of_what_does_not_load(cut_file: Path) -> None:
    done = called("inspect", cut_file, "--estimate", "--json")
    assert done.code == 1
    assert json.loads(done.out)["estimates"] == []


def test_inspect_refuses_in_one_line(tmp_path: Path) -> None:
    assert "there is no" in fails(1, "inspect", tmp_path / "no.gguf")
    assert "neither" in fails(1, "inspect", tmp_path)
    (tmp_path / "text.gguf").write_text("no model")
    assert "text.gguf" in fails(1, "inspect", tmp_path / "text.gguf")
    shutil.copy(SHIPPED_MODEL, tmp_path / "model.gguf")
    assert "'--n-ctx': 'many' is neither" in fails(2, "inspect", tmp_path / "model.gguf", "--n-ctx", "many")
    assert "--n-parallel" in fails(2, "inspect", "--n-parallel", 0)
    assert "'q99' is not one of" in fails(2, "inspect", "--outtype", "q99")
    assert "'q99' is not one of" in fails(2, "inspect", "--cache-type", "q99")
    assert "0 is not in the range" in fails(2, "inspect", "--n-ctx", 0)
    assert "-2 is not in the range" in fails(2, "inspect", "--n-gpu-layers", -2)


def test_numbers_in_a_row_are_a_range() -> None:
    assert ranges([0, 1, 2, 5, 7, 8]) == "0-2, 5, 7-8"
    assert ranges([]) == ""


@pytest.mark.slow
def test_control_characters_become_letters() -> None:
    assert printable("a\tb\x1b[31mç 語\u202e") == "a\\tb\\x1b[31mç 語\\u202e"
