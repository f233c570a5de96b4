"""Real models: each GGUF file and directory under ``$PYGGML_TEST_MODELS`` is loaded.

Whoever has models names their folder; ``make test-real`` names that of ``tools/real_models.py``. Whatever is in it,
except embedding models, has to load, to write the same text twice, to end its turn by itself, and to come from its
family's own method.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import pyggml
from pyggml import families

FOLDER = os.environ.get("PYGGML_TEST_MODELS", "")
PROMPT = "The capital of France is"
QUESTION = [{"role": "user", "content": "What is the capital of France? Answer with one word."}]


def found(folder: Path) -> list[Path]:
    """The models in a folder and below: GGUF files, split sets by their first part, and Hugging Face directories."""
    if not folder.is_dir():
        raise NotADirectoryError(f"PYGGML_TEST_MODELS is {folder}, which is not a directory")
    paths = list(files_below(folder))
    files = [path for path in paths if path.suffix == ".gguf" and not path.name.startswith(("mmproj", "ggml-vocab"))]
    whole = [path for path in files if "-of-" not in path.name or "-00001-of-" in path.name]
    configs = [path for path in paths if path.name == "config.json"]
    directories = [path.parent for path in configs if any(path.parent.glob("*.safetensors")) and generates(path)]
    return sorted([*whole, *directories])


def generates(config: Path) -> bool:
    """Check that a configuration is not an encoder's, or another part of an embedding model."""
    values = json.loads(config.read_text("utf-8"))
    return "model_type" in values and not families.of_config(values).family.is_encoder


def files_below(folder: Path) -> Iterator[Path]:
    """The files of a folder and of those below, through links; each folder once, even if links lead back to it."""
    seen = {folder.resolve()}
    for parent, folders, names in os.walk(folder, followlinks=True):
        real = {name: Path(parent, name).resolve() for name in folders}
        folders[:] = sorted(name for name in folders if real[name] not in seen)
        seen.update(real.values())
        yield from (path for path in (Path(parent, name) for name in names) if path.is_file())


PUBLISHED = found(Path(FOLDER)) if FOLDER else []
GPU = any(device.type in ("gpu", "igpu") for device in pyggml.devices())

NONE = pytest.param(None, marks=pytest.mark.skip(reason="PYGGML_TEST_MODELS names no folder with models"), id="none")


@pytest.fixture(scope="module", params=[pytest.param(path, id=path.name) for path in PUBLISHED] or [NONE])
def path(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found


@pytest.fixture(
    scope="module",
    params=[
        "cpu",
        pytest.param(
            "gpu",
            marks=[pytest.mark.gpu, pytest.mark.skipif(not GPU, reason="needs a GPU that the build supports")],
        ),
    ],
)
def device(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def llm(path: Path, device: str) -> Iterator[pyggml.LLM]:
    with pyggml.load(path, device=device, n_ctx=2048, n_parallel=1, prefix_cache=False) as llm:
        yield llm


@pytest.mark.slow
def test_greedy_text_is_there_and_stable(llm: pyggml.LLM) -> None:
    first, second = (llm.generate(PROMPT, max_tokens=48) for _ in range(2))
    assert first.text.strip()
    assert (second.text, second.token_ids, second.finish_reason) == (first.text, first.token_ids, first.finish_reason)
    assert "�" not in first.text or first.finish_reason == "length"  # the last character may be cut
    print(f"{llm!r}: {first.text!r}")


@pytest.mark.slow
def test_a_stream_gives_the_same_text(llm: pyggml.LLM) -> None:
    whole = llm.generate(PROMPT, max_tokens=24).text
    assert "".join(chunk.text for chunk in llm.stream(PROMPT, max_tokens=24)) == whole


@pytest.mark.slow
def test_text_survives_the_tokenizer(llm: pyggml.LLM) -> None:
    text = "Hello, world! 12,345 + 1 = ? Größe, 日本語, 🙂\n\tdef f(x): return x"
    assert llm.detokenize(llm.tokenize(text)) == text


@pytest.mark.slow
def test_a_chat_ends_by_itself(llm: pyggml.LLM) -> None:
    if "tokenizer.chat_template" not in llm.metadata:
        pytest.skip(f"{llm.model.path} has no chat template")
    answer = llm.chat(QUESTION, max_tokens=1500)
    assert answer.finish_reason == "stop"
    assert isinstance(answer.stop_reason, int)
    assert answer.stop_reason in llm.stop_tokens
    assert (answer.message.content or answer.message.reasoning_content or "").strip()
    print(f"{llm!r}: {answer.message.content!r}")


@pytest.mark.slow
def test_its_familys_method_loads_it(path: Path, llm: pyggml.LLM, device: str) -> None:
    expected = llm.generate(PROMPT, max_tokens=16)
    plan = pyggml.inspect(path).plan
    assert plan is not None
    use = getattr(pyggml.Inference(device), plan.factory)
    with use(path, n_ctx=2048, n_parallel=1, prefix_cache=False) as model:
        assert type(model).__name__ == plan.python_class
        completion = asyncio.run(model.forward(PROMPT, 16, completion=True))
    assert (completion.text, completion.token_ids) == (expected.text, expected.token_ids)


def test_models_are_found_through_links(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "models", tmp_path / "elsewhere"
    folder.mkdir()
    (elsewhere / "checkpoint").mkdir(parents=True)
    for name in ("a.gguf", "mmproj-a.gguf", "b-00001-of-00002.gguf", "b-00002-of-00002.gguf"):
        (elsewhere / name).touch()
    for name in ("config.json", "model.safetensors"):
        (elsewhere / "checkpoint" / name).write_text('{"model_type": "llama"}')
    (folder / "linked").symlink_to(elsewhere)
    (folder / "c.gguf").symlink_to(elsewhere / "a.gguf")
    (folder / "broken.gguf").symlink_to(elsewhere / "missing.gguf")
    (elsewhere / "back").symlink_to(folder)
    names = ["c.gguf", "linked/a.gguf", "linked/b-00001-of-00002.gguf", "linked/checkpoint"]
    assert found(folder) == [folder / name for name in names]
    (tmp_path / "link").symlink_to(folder)
    assert found(tmp_path / "link") == [tmp_path / "link" / name for name in names]
