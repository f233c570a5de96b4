"""Quantisation of GGUF files, compared with upstream's own quantiser tensor by tensor and byte by byte."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import quantizer
from support.checkpoints import models
from support.checkpoints.family_models import LAYOUTS
from support.checkpoints.hf_llama import HFLlama

import pyggml
from pyggml import (
    DiskFullError,
    InvalidParameterError,
    ModelLoadError,
    ModelNotFoundError,
    UnsupportedArchitectureError,
)
from pyggml._native.imatrix import Importance, ImportanceMatrix
from pyggml._native.quantization_mix import FILE_TYPES
from pyggml.gguf import GGMLType, GGUFReader
from pyggml.source import SHIPPED_MODEL
from pyggml.units import bytes_text

# What upstream has names for, but no rules.
FTYPES = sorted(set(FILE_TYPES) - {"nvfp4"})
NEED_IMPORTANCES = {"iq1_m", "iq1_s", "iq2_m", "iq2_s", "iq2_xs", "iq2_xxs", "iq3_xs", "iq3_xxs", "q2_k_s"}
IMATRIX_KEYS = "quantize.imatrix."


def metadata_of(path: Path) -> dict[str, Any]:
    with GGUFReader(path) as reader:
        return {key: np.asarray(value).tolist() for key, value in reader.metadata.items()}


def assert_same_tensors(ours: Path, theirs: Path) -> None:
    with GGUFReader(ours) as a, GGUFReader(theirs) as b:
        assert {t.name: (t.type, t.shape) for t in a.tensors.values()} == {
            t.name: (t.type, t.shape) for t in b.tensors.values()
        }
        for name in a.tensors:
            np.testing.assert_array_equal(a.tensor(name), b.tensor(name), err_msg=name)


def compare(tmp_path: Path, src: Path, imatrix: ImportanceMatrix | None) -> list[str]:
    """Quantises to everything, both ways; returns what both refuse."""
    ours, theirs = tmp_path / "ours.gguf", tmp_path / "theirs.gguf"
    refused = []
    for ftype in FTYPES:
        if not quantizer.upstream(src, theirs, ftype, imatrix):
            with pytest.raises(InvalidParameterError):
                pyggml.quantize(src, ours, ftype, imatrix=imatrix, n_threads=1)
            refused.append(ftype)
            continue
        pyggml.quantize(src, ours, ftype, imatrix=imatrix, n_threads=1)
        if imatrix is None:
            assert ours.read_bytes() == theirs.read_bytes(), ftype
        else:
            assert_same_tensors(ours, theirs)
    return refused


@pytest.mark.slow_except("falcon")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_mixture_is_upstreams(tmp_path: Path, layout: str) -> None:
    src = quantizer.write_rows(tmp_path / "src.gguf", layout)
    assert set(compare(tmp_path, src, None)) == NEED_IMPORTANCES


@pytest.mark.slow  # upstream fills tables for the smallest types
@pytest.mark.parametrize("layout", ["llama", "mixtral", "phi3", "gemma2", "falcon"])
def test_every_mixture_with_importances_is_upstreams(tmp_path: Path, layout: str) -> None:
    src = quantizer.write_rows(tmp_path / "src.gguf", layout)
    assert compare(tmp_path, src, quantizer.random_imatrix(src)) == []


def test_importances_change_mixtures(tmp_path: Path) -> None:
    """Importances reach the mix's rules; the tests above compare the rules with upstream's."""
    src = quantizer.write_rows(tmp_path / "src.gguf", "llama")
    for ftype, without, with_them in (("q4_0", "Q4_0", "Q4_1"), ("iq4_xs", "Q5_K", "IQ4_XS")):
        for imatrix, type in ((None, without), (quantizer.random_imatrix(src), with_them)):
            pyggml.quantize(src, tmp_path / "dst.gguf", ftype, imatrix=imatrix)
            assert quantizer.types_of(tmp_path / "dst.gguf")["blk.0.ffn_down.weight"] == GGMLType[type]


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["llama", "qwen2"])
def test_the_70b_of_a_family_has_rules_of_its_own(tmp_path: Path, layout: str) -> None:
    """Upstream knows it by its 80 blocks, and gives its few value heads more bits."""
    src = quantizer.write_rows(tmp_path / "src.gguf", layout, n_layer=80)
    assert quantizer.upstream(src, tmp_path / "theirs.gguf", "q3_k_s")
    pyggml.quantize(src, tmp_path / "ours.gguf", "q3_k_s")
    assert (tmp_path / "ours.gguf").read_bytes() == (tmp_path / "theirs.gguf").read_bytes()
    assert quantizer.types_of(tmp_path / "ours.gguf")["blk.40.attn_v.weight"] == GGMLType.Q5_K


def test_eight_experts_have_rules_of_their_own(tmp_path: Path) -> None:
    src = quantizer.write_rows(tmp_path / "src.gguf", "mixtral", expert_count=8)
    assert quantizer.upstream(src, tmp_path / "theirs.gguf", "q4_k_m")
    pyggml.quantize(src, tmp_path / "ours.gguf", "q4_k_m")
    assert (tmp_path / "ours.gguf").read_bytes() == (tmp_path / "theirs.gguf").read_bytes()
    assert quantizer.types_of(tmp_path / "ours.gguf")["blk.0.attn_k.weight"] == GGMLType.Q8_0


@pytest.mark.slow
def test_rows_that_blocks_do_not_divide(tiny_path: Path, tmp_path: Path) -> None:
    """64 and 96 values in a row: all but the smallest blocks have to make way."""
    assert compare(tmp_path, tiny_path, None) == ["q1_0"]


@pytest.mark.parametrize("write", [models.write_mamba, models.write_jamba, models.write_gemma2])
def test_other_architectures(tmp_path: Path, write: Any) -> None:
    src = write(tmp_path / "src.gguf")
    assert quantizer.upstream(src, tmp_path / "theirs.gguf", "q4_k_m")
    pyggml.quantize(src, tmp_path / "ours.gguf", "q4_k_m")
    assert (tmp_path / "ours.gguf").read_bytes() == (tmp_path / "theirs.gguf").read_bytes()


@pytest.mark.slow
def test_the_shipped_model_again(tmp_path: Path) -> None:
    """A real file, quantised already, with every kind of metadata."""
    ours, theirs = tmp_path / "ours.gguf", tmp_path / "theirs.gguf"
    report = pyggml.quantize(SHIPPED_MODEL, ours, "q4_k_m", requantize=True)
    assert quantizer.upstream(SHIPPED_MODEL, theirs, "q4_k_m", allow_requantize=True)
    assert ours.read_bytes() == theirs.read_bytes()
    assert report.path == ours
    assert report.n_bytes == ours.stat().st_size < SHIPPED_MODEL.stat().st_size
    assert report.architecture == "llama"
    assert sum(report.types.values()) == len(quantizer.types_of(ours))
    with pyggml.load(ours, n_threads=1) as llm:
        assert llm.chat([{"role": "user", "content": "What colour is grass?"}]).message.content == "Grass is green."


def test_split_sets_become_one_file(tiny_path: Path, tmp_path: Path) -> None:
    first = quantizer.write_split(tiny_path, tmp_path / "model", 3)
    assert quantizer.upstream(first, tmp_path / "theirs.gguf", "q8_0")
    pyggml.quantize(first, tmp_path / "ours.gguf", "q8_0")
    assert (tmp_path / "ours.gguf").read_bytes() == (tmp_path / "theirs.gguf").read_bytes()
    assert not any(key.startswith("split.") for key in metadata_of(tmp_path / "ours.gguf"))
    with pytest.raises(ModelLoadError, match="pass the first"):
        pyggml.quantize(tmp_path / "model-00002-of-00003.gguf", tmp_path / "dst.gguf", "q8_0")
    renamed = first.rename(tmp_path / "first.gguf")
    with pytest.raises(ModelLoadError, match=r"does not end in -00001-of-00003\.gguf"):
        pyggml.quantize(renamed, tmp_path / "dst.gguf", "q8_0")
    renamed.rename(first)
    (tmp_path / "model-00003-of-00003.gguf").unlink()
    with pytest.raises(ModelNotFoundError, match=r"model-00003-of-00003\.gguf is missing"):
        pyggml.quantize(first, tmp_path / "dst.gguf", "q8_0")
    assert not (tmp_path / "dst.gguf").exists()


@pytest.mark.parametrize("ftype", ["f16", "bf16"])
def test_sources_of_smaller_floats(tiny_path: Path, tmp_path: Path, ftype: str) -> None:
    src = tmp_path / "src.gguf"
    pyggml.quantize(tiny_path, src, ftype)
    assert quantizer.upstream(src, tmp_path / "theirs.gguf", "q5_1")
    pyggml.quantize(src, tmp_path / "ours.gguf", "q5_1")
    assert (tmp_path / "ours.gguf").read_bytes() == (tmp_path / "theirs.gguf").read_bytes()


@pytest.mark.slow
def test_threads_do_not_change_the_file(tmp_path: Path) -> None:
    """Experts of several chunks of rows each, with importances that must not be mixed up."""
    experts = models.Draw(0)(3, 3000, 512)
    src = models.write(
        tmp_path / "src.gguf",
        {
            **models.metadata_of(models.write_llama(tmp_path / "llama.gguf")),
            "llama.expert_count": 3,
            "llama.expert_used_count": 2,
        },
        {**models.llama_weights(), "blk.0.ffn_down_exps.weight": experts},
    )
    imatrix = quantizer.random_imatrix(src)
    for n in (1, 3):
        pyggml.quantize(src, tmp_path / f"{n}.gguf", "q4_k_m", imatrix=imatrix, n_threads=n)
    assert (tmp_path / "1.gguf").read_bytes() == (tmp_path / "3.gguf").read_bytes()
    assert quantizer.upstream(src, tmp_path / "theirs.gguf", "q4_k_m", imatrix)
    assert_same_tensors(tmp_path / "1.gguf", tmp_path / "theirs.gguf")


# --- what it says about importances -----------------------------------------------------------------------------


def test_the_matrix_is_named_in_the_file(tmp_path: Path) -> None:
    src = quantizer.write_rows(tmp_path / "src.gguf", "llama", n_layer=1)
    imatrix = quantizer.random_imatrix(src)
    pyggml.quantize(src, tmp_path / "a.gguf", "q4_k_m", imatrix=imatrix)
    about = {key: value for key, value in metadata_of(tmp_path / "a.gguf").items() if key.startswith(IMATRIX_KEYS)}
    assert about == {
        "quantize.imatrix.dataset": "a text",
        "quantize.imatrix.entries_count": len(imatrix.entries),
        "quantize.imatrix.chunks_count": 3,
    }
    imatrix.save(tmp_path / "a.imatrix")
    pyggml.quantize(src, tmp_path / "b.gguf", "q4_k_m", imatrix=tmp_path / "a.imatrix")
    assert metadata_of(tmp_path / "b.gguf")["quantize.imatrix.file"] == str(tmp_path / "a.imatrix")
    assert_same_tensors(tmp_path / "a.gguf", tmp_path / "b.gguf")


def test_tensors_without_importances(tmp_path: Path) -> None:
    src, dst = quantizer.write_rows(tmp_path / "src.gguf", "llama", n_layer=1), tmp_path / "dst.gguf"
    partial = quantizer.random_imatrix(src, without="ffn_up")
    report = pyggml.quantize(src, dst, "q4_k_m", imatrix=partial)
    assert report.notes == ("the importance matrix has no entry for 1 quantised tensors: blk.0.ffn_up.weight",)
    dst.unlink()
    with pytest.raises(
        InvalidParameterError, match=r"'blk\.0\.ffn_up\.weight' the type IQ2_XXS.* has none for this tensor"
    ):
        pyggml.quantize(src, dst, "iq2_xxs", imatrix=partial)
    with pytest.raises(InvalidParameterError, match=r"iq2_xxs gives tensor .* give an importance matrix"):
        pyggml.quantize(src, dst, "iq2_xxs")
    assert not dst.exists()


def test_importances_of_another_model(tmp_path: Path) -> None:
    src, dst = quantizer.write_rows(tmp_path / "src.gguf", "llama", n_layer=1), tmp_path / "dst.gguf"
    one = Importance(np.ones((1, 64), np.float32), np.ones(1, np.int64))
    with pytest.raises(
        InvalidParameterError, match=r"belongs to another model.* 64 importances for .*attn_q.* needs 256"
    ):
        pyggml.quantize(src, dst, "q4_k_m", imatrix=ImportanceMatrix({"blk.0.attn_q.weight": one}, (), 512, 1))
    with pytest.raises(InvalidParameterError, match="belongs to another model: none of its 1 tensors"):
        pyggml.quantize(src, dst, "q4_k_m", imatrix=ImportanceMatrix({"h.0.mlp": one}, (), 512, 1))
    assert not dst.exists()


def test_importances_lower_the_error_that_matters(tmp_path: Path) -> None:
    src = quantizer.write_rows(tmp_path / "src.gguf", "llama", n_layer=1)
    imatrix = quantizer.random_imatrix(src)
    pyggml.quantize(src, tmp_path / "without.gguf", "q2_k")
    pyggml.quantize(src, tmp_path / "with.gguf", "q2_k", imatrix=imatrix)
    with GGUFReader(src) as exact:
        for name, entry in imatrix.entries.items():
            errors = []
            for path in (tmp_path / "without.gguf", tmp_path / "with.gguf"):
                with GGUFReader(path) as reader:
                    assert reader.tensors[name].type.is_quantized
                    errors.append(
                        float((entry.weights * (reader.dequantized(name) - exact.dequantized(name)) ** 2).sum())
                    )
            assert errors[1] < errors[0], name


@pytest.mark.slow
def test_imports_use_importances_in_the_same_pass(tmp_path: Path) -> None:
    HFLlama(n_embd=256, head_dim=64, n_ff=512, n_layer=2).write(tmp_path / "hf")
    pyggml.convert(tmp_path / "hf", tmp_path / "f32.gguf", "f32")
    imatrix = quantizer.random_imatrix(tmp_path / "f32.gguf")
    for ftype in ("iq2_xs", "q4_0"):
        pyggml.convert(tmp_path / "hf", tmp_path / "one.gguf", ftype, imatrix=imatrix)
        pyggml.quantize(tmp_path / "f32.gguf", tmp_path / "two.gguf", ftype, imatrix=imatrix)
        assert_same_tensors(tmp_path / "one.gguf", tmp_path / "two.gguf")
        assert metadata_of(tmp_path / "one.gguf") == metadata_of(tmp_path / "two.gguf")


# --- what the caller decides ------------------------------------------------------------------------------------


def test_types_by_name(tiny_path: Path, tmp_path: Path) -> None:
    wishes = {r"^output\.weight": "f32", r"blk\.0\.ffn_": "q8_0", "ffn_": "Q4_1", "token_embd": "bf16"}
    del wishes[r"^output\.weight"]  # the embedding is the output of this one
    pyggml.quantize(tiny_path, tmp_path / "dst.gguf", "q5_0", tensor_types=wishes)
    types = quantizer.types_of(tmp_path / "dst.gguf")
    assert types["blk.0.ffn_up.weight"] == GGMLType.Q8_0  # the first that fits counts
    assert types["blk.1.ffn_up.weight"] == GGMLType.Q4_1
    assert types["blk.1.attn_k.weight"] == GGMLType.Q5_0
    assert types["blk.0.ffn_norm.weight"] == GGMLType.F32  # and vectors stay what they are
    assert types["token_embd.weight"] == GGMLType.BF16


def test_types_by_name_for_files_of_floats(tiny_path: Path, tmp_path: Path) -> None:
    pyggml.quantize(tiny_path, tmp_path / "dst.gguf", "f16", tensor_types={"token_embd": "q8_0"})
    types = quantizer.types_of(tmp_path / "dst.gguf")
    assert types["token_embd.weight"] == GGMLType.Q8_0
    assert types["blk.0.attn_k.weight"] == GGMLType.F16


def test_types_that_do_not_fit_fall_back_and_the_report_says_so(tiny_path: Path, tmp_path: Path) -> None:
    done = pyggml.quantize(tiny_path, tmp_path / "dst.gguf", "q8_0", tensor_types={"ffn_up": "q4_k"})
    assert quantizer.types_of(tmp_path / "dst.gguf")["blk.0.ffn_up.weight"] == GGMLType.Q5_0
    assert done.notes == (
        "2 tensors fell back to another type, 2 Q5_0: rows of 64 values are not whole blocks of the type meant for "
        "them",
    )


def test_earlier_names_of_parameters(tiny_path: Path, tmp_path: Path) -> None:
    done = pyggml.quantize(src=tiny_path, dst=tmp_path / "dst.gguf", ftype="q8_0", dry_run=True)  # type: ignore[call-arg]
    assert done == pyggml.quantize(tiny_path, out=tmp_path / "dst.gguf", outtype="q8_0", dry_run=True)
    with pytest.raises(TypeError, match="two values for the parameter 'out'"):
        pyggml.quantize(tiny_path, dst="a.gguf", out="b.gguf", outtype="q8_0")  # type: ignore[call-arg]


def test_a_file_that_grows_is_noted(tmp_path: Path) -> None:
    before, after = SHIPPED_MODEL.stat().st_size, tmp_path / "dst.gguf"
    (note,) = pyggml.quantize(SHIPPED_MODEL, after, "f16", dry_run=True).notes
    assert note.startswith("the file is larger than the source: ")
    assert note.endswith(bytes_text(before))


def test_bits_per_weight_are_those_of_inspect(tiny_path: Path, tmp_path: Path) -> None:
    done = pyggml.quantize(tiny_path, tmp_path / "dst.gguf", "q8_0")
    report = pyggml.inspect(done.path)
    assert done.bits_per_weight == report.quantization.bits_per_weight > 8.5
    assert f"{bytes_text(done.n_bytes)}\n" in str(report)


def test_kept_as_they_are(tmp_path: Path) -> None:
    src = quantizer.write_rows(tmp_path / "src.gguf", "stablelm")
    assert quantizer.upstream(src, tmp_path / "theirs.gguf", "q4_k_m", quantize_output_tensor=False)
    pyggml.quantize(src, tmp_path / "ours.gguf", "q4_k_m", keep=[r"^output\.weight$"])
    assert (tmp_path / "ours.gguf").read_bytes() == (tmp_path / "theirs.gguf").read_bytes()
    assert quantizer.types_of(tmp_path / "ours.gguf")["output.weight"] == GGMLType.F32


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"tensor_types": {"ffn_dwn": "q8_0"}},
            "'ffn_dwn' matches no tensor that can be quantised; their names are blk.0.attn_k.weight, ",
        ),
        ({"tensor_types": {"_norm": "q8_0"}}, "'_norm' matches no tensor that can be quantised"),
        ({"tensor_types": {"ffn_up": "q4_k_m"}}, "'q4_k_m' is not an element type; choose one of f32, f16"),
        ({"tensor_types": {"ffn_up": "q8_1"}}, "'q8_1' is not an element type"),
        ({"tensor_types": {"ffn_up": 8}}, "8 is not an element type"),
        ({"tensor_types": {"(": "q8_0"}}, r"'\(' is not a valid regular expression"),
        ({"tensor_types": "ffn_up=q8_0"}, "must map"),
        ({"keep": "output.weight"}, "keep must be a list"),
        ({"keep": [3]}, "a regular expression was expected"),
        ({"keep": ["nothing"]}, "'nothing'"),
        ({"outtype": "q4"}, "outtype is 'q4'; did you mean q4_k_m"),
        ({"outtype": None}, "outtype is None"),
        ({"outtype": "auto"}, "outtype is 'auto'"),
        ({"outtype": "nvfp4"}, "cannot make files of type"),
        ({"outtype": "q1_0"}, r"'blk\.0\.attn_k\.weight' has rows of 64 values: no tensor type fallback"),
        ({"n_threads": 0}, "n_threads must be between 1 and"),
        ({"source": 3}, "must be given as a path"),
        ({"out": "a\0b"}, "out must be the path"),
        ({"imatrix": 3}, "given as a path"),
    ],
)
def test_arguments_that_cannot_be(tiny_path: Path, tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        pyggml.quantize(**{"source": tiny_path, "out": tmp_path / "dst.gguf", "outtype": "q8_0", **arguments})
    assert not list(tmp_path.iterdir())


# --- what can go wrong ------------------------------------------------------------------------------------------


def test_the_source_is_not_overwritten(tiny_path: Path, tmp_path: Path) -> None:
    src = shutil.copy(tiny_path, tmp_path / "model.gguf")
    (tmp_path / "link.gguf").hardlink_to(src)
    for dst in (src, tmp_path / "link.gguf"):
        with pytest.raises(InvalidParameterError, match="is the source model"):
            pyggml.quantize(src, dst, "q8_0")
    assert Path(src).read_bytes() == tiny_path.read_bytes()


def test_quantised_sources_are_refused_unless_asked_for(tiny_path: Path, tmp_path: Path) -> None:
    src, dst = tmp_path / "src.gguf", tmp_path / "dst.gguf"
    pyggml.quantize(tiny_path, src, "q8_0")
    with pytest.raises(
        InvalidParameterError, match=r"already quantised: .* is Q8_0, and converting it to Q4_0 .*requantize"
    ):
        pyggml.quantize(src, dst, "q4_0")
    assert not dst.exists()
    pyggml.quantize(src, dst, "q8_0")  # nothing to do
    pyggml.quantize(src, dst, "f32")  # nothing to lose
    pyggml.quantize(src, dst, "q4_0", requantize=True)
    assert quantizer.types_of(dst)["blk.0.ffn_up.weight"] == GGMLType.Q4_0


def test_missing_and_broken_sources(tiny_path: Path, tmp_path: Path) -> None:
    dst = tmp_path / "dst.gguf"
    with pytest.raises(ModelNotFoundError):
        pyggml.quantize(tmp_path / "nothing.gguf", dst, "q8_0")
    (tmp_path / "cut.gguf").write_bytes(tiny_path.read_bytes()[:-1000])
    with pytest.raises(ModelLoadError):
        pyggml.quantize(tmp_path / "cut.gguf", dst, "q8_0")
    weights = {"a.weight": np.ones((32, 32), np.float32)}
    other = models.write(tmp_path / "other.gguf", {"general.architecture": "abacus"}, weights)
    with pytest.raises(UnsupportedArchitectureError, match="'abacus'"):
        pyggml.quantize(other, dst, "q8_0")
    bare = models.write(tmp_path / "bare.gguf", {"general.architecture": "llama"}, weights)
    with pytest.raises(ModelLoadError, match="context_length"):
        pyggml.quantize(bare, dst, "q8_0")
    with pytest.raises(ModelLoadError, match=r"is a directory; .* convert takes directories"):
        pyggml.quantize(tmp_path, dst, "q8_0")
    assert not dst.exists()


def test_values_beyond_a_type_are_refused(tmp_path: Path) -> None:
    weights = models.llama_weights()
    weights["blk.1.ffn_up.weight"][3, 5] = np.nan
    src = models.write(tmp_path / "src.gguf", models.metadata_of(models.write_llama(tmp_path / "llama.gguf")), weights)
    with pytest.raises(ModelLoadError, match=r"'blk\.1\.ffn_up\.weight' cannot be stored as Q8_0"):
        pyggml.quantize(src, tmp_path / "dst.gguf", "q8_0")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["llama.gguf", "src.gguf"]


def test_full_disks_are_refused_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch, tiny_path: Path, tmp_path: Path
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(DiskFullError, match=r"has only 1\.00 kB free") as caught:
        pyggml.quantize(tiny_path, tmp_path / "dst.gguf", "q8_0")
    assert caught.value.required_bytes > caught.value.available_bytes == 1000
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_disks_that_get_full(tiny_path: Path, tmp_path: Path) -> None:
    program = (
        "import resource, sys, pyggml\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        "pyggml.quantize(sys.argv[1], sys.argv[2], 'q8_0')\n"
    )
    arguments = [sys.executable, "-c", program, str(tiny_path), str(tmp_path / "dst.gguf")]
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert "DiskFullError" in done.stderr
    assert "but the disk is full" in done.stderr
    assert not list(tmp_path.iterdir())


def test_progress_tells_and_stops(tiny_path: Path, tmp_path: Path) -> None:
    told: list[float] = []
    pyggml.quantize(tiny_path, tmp_path / "dst.gguf", "q8_0", progress=told.append)
    assert told == sorted(told)
    assert told[-1] == 1
    before = (tmp_path / "dst.gguf").read_bytes()
    with pytest.raises(ModelLoadError, match="stopped by its progress callback"):
        pyggml.quantize(tiny_path, tmp_path / "dst.gguf", "q4_0", progress=lambda done: done < 0.5)
    assert [path.name for path in tmp_path.iterdir()] == ["dst.gguf"]
    assert (tmp_path / "dst.gguf").read_bytes() == before


@pytest.mark.slow
def test_killed_midway_leaves_no_model(tiny_path: Path, tmp_path: Path) -> None:
    program = (
        "import os, signal, sys, pyggml\n"
        "pyggml.quantize(sys.argv[1], sys.argv[2], 'q8_0',\n"
        "                progress=lambda done: os.kill(os.getpid(), signal.SIGKILL) if done > 0.5 else None)\n"
    )
    dst = tmp_path / "dst.gguf"
    done = subprocess.run([sys.executable, "-c", program, str(tiny_path), str(dst)], capture_output=True)
    assert done.returncode == -9
    assert not list(tmp_path.glob("*.gguf"))
