"""One file adds a family: the example of docs/reference/model-families.md, in an otherwise unmodified package."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checkpoints import family_models, models, tokenizer_files
from support.checkpoints.hf_llama import HFLlama
from support.paths import ROOT

import pyggml
from pyggml import _pyggml

PAGE = (ROOT / "docs" / "reference" / "model-families.md").read_text()
DECLARATION = re.search(r'^```py\n("""Madeup.*?)^```', PAGE, re.MULTILINE | re.DOTALL)
DONE = "<|done|>"
PROMPT = [10, 200, 31, 4]

#: What is tried with the copy; prints what it found.
PROGRAM = """
import json, sys
from pathlib import Path

import pyggml
from pyggml import families

sys.path.append(sys.argv[1])
import make_families

here = Path(sys.argv[2])
cpu = pyggml.Inference.cpu()

def refused(method, path):
    try:
        method(path)
    except pyggml.ArchitectureMismatchError as error:
        return str(error)

found = {"stub": make_families.stub_text(), "table": make_families.table_of_families()}
config = json.loads((here / "madeup-2-tiny" / "config.json").read_text())
configs = config, {**config, "model_type": None}
found["of_config"] = [families.of_config(each).family.name for each in configs]
found["inspect"] = [pyggml.inspect(here / name).to_dict() for name in ("madeup-2-tiny", "madeup.gguf")]
found["converted"] = pyggml.convert(here / "madeup-2-tiny", here / "converted.gguf").architecture
found["used"] = []
for name in ("madeup-2-tiny", "madeup.gguf"):
    with cpu.use_madeup(here / name, n_threads=1) as model, cpu.use_auto(here / name, n_threads=1) as same:
        assert type(model) is type(same) is pyggml.Madeup, (model, same)
        found["used"].append([model.family.name, *model.stop_tokens.values()])
found["refused"] = [refused(cpu.use_qwen3, here / "madeup.gguf"), refused(cpu.use_madeup, here / "llama.gguf")]
found["public"] = "Madeup" in pyggml.__all__ and "Madeup" in dir(pyggml)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package, and one more file in it."""
    folder = tmp_path_factory.mktemp("copy")
    families = folder / "pyggml" / "families"
    families.mkdir(parents=True)
    package, compiled = Path(pyggml.__file__).parent, Path(_pyggml.__file__).parent
    for source in {*package.iterdir(), *compiled.glob("*.so*")}:
        if source.name not in ("families", "_family_classes.pyi"):
            (folder / "pyggml" / source.name).symlink_to(source)
    for source in [*(package / "families").glob("*.py"), package / "families" / "encoders"]:
        (families / source.name).symlink_to(source)
    assert DECLARATION is not None
    (families / "madeup.py").write_text(DECLARATION[1], "utf-8")
    return folder


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a Hugging Face directory and a GGUF file of the family, and a Llama."""
    folder = tmp_path_factory.mktemp("files")
    directory = folder / "madeup-2-tiny"
    checkpoint = HFLlama()
    checkpoint.config |= {"model_type": "madeup", "architectures": ["MadeupForCausalLM"]}
    checkpoint.write(directory)
    tokenizer_files.write_json(directory, models.byte_vocabulary(DONE))
    vocabulary = family_models.small_vocabulary(DONE)
    family_models.write(folder / "madeup.gguf", "llama", vocabulary, name="Madeup 2 1B")
    family_models.write(folder / "llama.gguf", "llama", family_models.small_vocabulary("</s>"), name="Llama 2")
    return folder


@pytest.fixture(scope="module")
def found(copy: Path, files: Path) -> dict[str, Any]:
    """The output of the program."""
    # Without site-packages' hooks, one of which finds an editable install before anything on the path.
    command = [sys.executable, "-S", "-c", PROGRAM, str(ROOT / "tools"), str(files)]
    path = os.pathsep.join([str(copy), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": path, "PYGGML_CACHE": str(files / "cache")}
    done = subprocess.run(command, env=environment, cwd=files, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.mark.slow
def test_is_recognised(found: dict[str, Any]) -> None:
    assert found["of_config"] == ["madeup", "madeup"]
    for report in found["inspect"]:
        assert (report["family"], report["variant"]) == ("madeup", "Madeup 2")
        assert (report["plan"]["factory"], report["plan"]["python_class"]) == ("use_madeup", "Madeup")
        assert report["plan"]["loads"], report["plan"]["refusal"]


def test_is_imported(found: dict[str, Any], files: Path) -> None:
    assert found["converted"] == "llama"
    with pyggml.load(files / "converted.gguf", n_threads=1) as llm:
        np.testing.assert_allclose(llm.logits(PROMPT), HFLlama().logits(PROMPT), atol=0.05)


def test_has_its_class_and_factory(found: dict[str, Any]) -> None:
    assert found["public"]
    assert found["used"] == [["madeup", DONE, "<|endoftext|>", "<|im_end|>"], ["madeup", DONE]]
    theirs, ours = found["refused"]
    assert theirs.startswith("Qwen3 and use_qwen3() are for Qwen3")
    assert "madeup.gguf is Madeup: " in theirs
    assert "Madeup and use_madeup() are for those" in theirs
    assert ours.startswith("Madeup and use_madeup() are for Madeup, and llama.gguf is Llama 1, 2 or TinyLlama")


@pytest.mark.slow
def test_is_in_the_documentation(found: dict[str, Any]) -> None:
    assert r"| `madeup`: Madeup | llama | `<\|done\|>` |  |" in found["table"].splitlines()


@pytest.mark.slow
def test_type_checkers_know_it(found: dict[str, Any], copy: Path, tmp_path: Path) -> None:
    (copy / "pyggml" / "_family_classes.pyi").write_text(found["stub"], "utf-8")
    program = tmp_path / "program.py"
    program.write_text(
        "import pyggml\n"
        "reveal_type(pyggml.Madeup)\n"
        "reveal_type(pyggml.Inference.cpu().use_madeup('madeup.gguf', n_ctx=512))\n"
        "pyggml.Inference.cpu().use_madeup('madeup.gguf', n_ctx='many')\n"
        "pyggml.Inference.cpu().use_made_up('madeup.gguf')\n"
    )
    options = ["--strict", "--config-file=", f"--cache-dir={tmp_path / 'cache'}"]
    command = [sys.executable, "-m", "mypy", *options, str(program)]
    environment = {**os.environ, "MYPYPATH": str(copy)}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    said = [line for line in done.stdout.splitlines() if line.startswith(program.name) and "defined in" not in line]
    expected = [
        r'program\.py:2: note: Revealed type is ".* -> pyggml\._family_classes\.Madeup"',
        r'program\.py:3: note: Revealed type is "pyggml\._family_classes\.Madeup"',
        r'program\.py:4: error: Argument "n_ctx" to "use_madeup" .*',
        r'program\.py:5: error: "Inference" has no attribute "use_made_up".*',
    ]
    assert len(said) == len(expected), done
    assert all(map(re.fullmatch, expected, said)), said
