"""Memory estimates equal what the engine then takes, and suggested options fit."""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.checkpoints import models
from support.checkpoints.hf_llama import HFLlama

import pyggml
from pyggml import Context, Model, errors, ffi, lib
from pyggml._core import c_calls
from pyggml._native.placement import Placement
from pyggml.errors import (
    DeviceError,
    InvalidParameterError,
    ModelLoadError,
    ModelNotFoundError,
    OutOfMemoryError,
    TokenizerError,
)
from pyggml.files.model_files import gguf_at
from pyggml.gguf import GGUFReader
from pyggml.memory import gguf_header
from pyggml.memory.estimate import MemoryEstimate, estimate
from pyggml.memory.llm_context import context_options
from pyggml.memory.planner import Planner, device_memories
from pyggml.memory.search import (
    CELL_PAD,
    HEADROOM,
    SMALLER_CACHES,
    DeviceMemory,
    Limits,
    ResolvedOptions,
    Suggestions,
    largest_n_ctx,
    most_gpu_layers,
    suggest,
    tightest,
)
from pyggml.options import MemoryOptions
from pyggml.options.file_types import NO_IMATRIX_TYPES as OUTTYPES
from pyggml.quant import GGMLType
from pyggml.source import SHIPPED_MODEL

MB = 10**6

needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system has no /proc/self/status")


def taken(context: Context) -> DeviceMemory:
    """The engine's report of the main memory of a context and its model."""
    memory = ffi.new("pyg_memory *")
    c_calls.call(lib.pyg_context_memory, context._handle, memory)
    return device_memories(memory)[0]


def require_equal(planned: MemoryEstimate, real: DeviceMemory) -> None:
    """Byte for byte, but for what the engine does not count: its table of cells, graphs, and rows of output."""
    assert len(planned.devices) == 1
    assert planned.weights_bytes == real.weights_bytes
    assert planned.devices[0].repacked_bytes == real.repacked_bytes
    n_cells = -(-planned.n_ctx // CELL_PAD) * CELL_PAD
    assert 0 <= planned.cache_bytes - real.cache_bytes <= 200 * n_cells
    assert 0 <= planned.compute_bytes - real.compute_bytes <= 3 * MB + planned.n_parallel * 4 * 32_000


# --- against the engine -----------------------------------------------------------------------------------------


KINDS: dict[str, Callable[[Path], Path]] = {
    "llama": models.write_llama,
    "sliding window": models.write_gemma2,
    "recurrent": models.write_mamba,
    "hybrid": models.write_jamba,
}


@pytest.mark.slow_except("llama")
@pytest.mark.parametrize("kind", KINDS)
def test_small_models(model_dir: Path, kind: str) -> None:
    path = KINDS[kind](model_dir / f"estimated-{kind}.gguf")
    with Model(path, use_mmap=False) as model:
        for n_ctx, n_parallel, cache_type in itertools.product((512, 8192, 32768), (1, 8), ("f16", "q8_0")):
            planned = estimate(path, n_ctx=n_ctx, n_parallel=n_parallel, cache_type=cache_type)
            assert planned.fits
            with Context(model, **as_planned(n_ctx, n_parallel=n_parallel, cache_type=cache_type)) as context:
                require_equal(planned, taken(context))


@pytest.fixture(scope="module")
def lay_wide(model_dir: Path) -> Callable[[str], Path]:
    """By a file type, a model with two layers of TinyLlama's widths and its vocabulary; its weights are zeros."""

    def make(file_type: str) -> Path:
        path = model_dir / f"wide-{file_type}.gguf"
        if not path.exists():
            lay(path, file_type)
        return path

    return make


def lay(path: Path, file_type: str, n_layer: int = 2) -> None:
    n_embd, n_ff, n_head, n_head_kv, head_dim, n_vocab = 2048, 5632, 32, 4, 64, 32000
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (n_vocab, n_embd)}
    for i in range(n_layer):
        shapes |= {
            f"blk.{i}.attn_norm.weight": (n_embd,),
            f"blk.{i}.attn_q.weight": (n_head * head_dim, n_embd),
            f"blk.{i}.attn_k.weight": (n_head_kv * head_dim, n_embd),
            f"blk.{i}.attn_v.weight": (n_head_kv * head_dim, n_embd),
            f"blk.{i}.attn_output.weight": (n_embd, n_head * head_dim),
            f"blk.{i}.ffn_norm.weight": (n_embd,),
            f"blk.{i}.ffn_gate.weight": (n_ff, n_embd),
            f"blk.{i}.ffn_up.weight": (n_ff, n_embd),
            f"blk.{i}.ffn_down.weight": (n_embd, n_ff),
        }
    shapes["output_norm.weight"] = (n_embd,)
    shapes["output.weight"] = (n_vocab, n_embd)
    metadata = {
        "general.architecture": "llama",
        "llama.context_length": 32768,
        "llama.embedding_length": n_embd,
        "llama.block_count": n_layer,
        "llama.feed_forward_length": n_ff,
        "llama.attention.head_count": n_head,
        "llama.attention.head_count_kv": n_head_kv,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.dimension_count": head_dim,
    }
    tensors = [
        gguf_header.Tensor(name, shape, GGMLType.F32 if len(shape) == 1 else GGMLType.F16)
        for name, shape in shapes.items()
    ]
    metadata |= models.real_vocabulary("llama-spm")
    gguf_header.GGUFHeader(metadata, tensors).write(path)
    if file_type != "f16":
        gguf_header.GGUFHeader(metadata, gguf_header.build_header(gguf_at(path), file_type).tensors).write(path)


@pytest.mark.slow_except("q4_0")
@pytest.mark.parametrize("file_type", ["f16", "q8_0", "q4_0", "q4_k_m"])
def test_real_widths(lay_wide: Callable[[str], Path], file_type: str) -> None:
    """Mapped, as models are loaded: what was copied to a layout that computes faster does not count twice."""
    path = lay_wide(file_type)
    with Model(path) as model:
        for n_ctx, n_parallel, cache_type in ((512, 1, "f16"), (8192, 8, "q8_0")):
            planned = estimate(path, n_ctx=n_ctx, n_parallel=n_parallel, cache_type=cache_type)
            with Context(model, **as_planned(n_ctx, n_parallel=n_parallel, cache_type=cache_type)) as context:
                real = taken(context)
            require_equal(planned, real)


def test_the_shipped_model() -> None:
    planned = estimate()
    with Model(SHIPPED_MODEL, use_mmap=False) as model, Context(model, **as_planned(model.n_ctx_train)) as context:
        require_equal(planned, taken(context))
    with pyggml.load() as llm:
        assert (llm.n_ctx, llm.n_parallel) == (planned.n_ctx, planned.n_parallel)
        (memory,) = llm.memory
        assert memory.weights_bytes == planned.weights_bytes
        assert 0.5 * planned.cache_bytes < memory.cache_bytes <= planned.cache_bytes
        assert 0.5 * planned.compute_bytes < memory.compute_bytes <= planned.compute_bytes


def test_real_widths_without_mmap(lay_wide: Callable[[str], Path]) -> None:
    path = lay_wide("q4_k_m")
    with Model(path, use_mmap=False) as model, Context(model, **as_planned(512)) as context:
        require_equal(estimate(path, n_ctx=512), taken(context))


def test_the_limit_of_the_prefix_cache(tiny_path: Path, bert_path: Path) -> None:
    by_default, none, given = (estimate(tiny_path, prefix_cache_bytes=n) for n in (None, 0, 5_000_000))
    assert by_default.prefix_cache_limit_bytes == min(1 << 30, by_default.devices[0].available_bytes // 8)
    assert (none.prefix_cache_limit_bytes, given.prefix_cache_limit_bytes) == (0, 5_000_000)
    assert given.total_bytes == by_default.total_bytes  # it is no part of what has to fit
    assert re.search(r"^  prefix cache +up to 5.00 MB more, with use$", str(given), re.MULTILINE)
    assert re.search(r"^  prefix cache +none$", str(none), re.MULTILINE)
    assert estimate(bert_path).prefix_cache_limit_bytes == 0  # it has no engine
    assert given.to_dict()["prefix_cache_limit_bytes"] == 5_000_000


def as_planned(n_ctx: int, **options: Any) -> dict[str, Any]:
    return vars(context_options(MemoryOptions(**options), n_ctx))


GROWTH = """
import ctypes, json, sys
import pyggml
from pyggml.memory.estimate import estimate

def resident():
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))

with pyggml.load() as llm:
    llm.generate([5], max_tokens=2)
options = dict(n_ctx=1024, n_parallel=1)
planned = estimate(sys.argv[1], **options)
before = resident()
with pyggml.load(sys.argv[1], **options) as llm:
    llm.generate([7] * 1000, max_tokens=20, ignore_eos=True)
    print(json.dumps([planned.resident_bytes, resident() - before]))
"""


@pytest.mark.slow
@needs_proc
def test_the_process_grows_as_much(lay_wide: Callable[[str], Path]) -> None:
    done = subprocess.run([sys.executable, "-c", GROWTH, lay_wide("q4_0")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    planned, grown = json.loads(done.stdout)
    assert abs(planned - grown) <= 0.1 * grown


def test_large_contexts_are_extrapolated(tiny_path: Path) -> None:
    """Beyond 262,144 cells nothing is planned for each of them, and the numbers go on as straight as before."""
    estimates = [estimate(tiny_path, n_ctx=n * 131_072) for n in (1, 2, 3, 64)]
    caches = [each.cache_bytes for each in estimates]
    assert caches[2] - caches[1] == caches[1] - caches[0]
    assert caches[3] == caches[0] + 63 * (caches[1] - caches[0])
    computes = [each.compute_bytes for each in estimates]
    assert computes[2] - computes[1] == computes[1] - computes[0]


def test_an_encoder(bert_path: Path) -> None:
    planned = estimate(bert_path)
    with pyggml.load(bert_path) as llm:
        assert llm.n_ctx == planned.n_ctx
        assert llm.embed("hello").shape == (llm.model.n_embd_out,)
    assert planned.fits
    assert planned.weights_bytes > 0 < planned.compute_bytes
    assert planned.cache_bytes == 0  # it remembers nothing


def test_a_classifier(model_dir: Path) -> None:
    assert estimate(models.write_bert(model_dir / "estimated-ranker.gguf", ranks=True)).fits


def test_both_parts(model_dir: Path) -> None:
    assert estimate(models.write_t5(model_dir / "estimated-t5.gguf")).fits


# --- other types of the weights ---------------------------------------------------------------------------------


@pytest.mark.slow_except("auto", "f32", "f16", "bf16")
@pytest.mark.parametrize("outtype", ["auto", "f32", "f16", "bf16", "q8_0", "q4_k_m"])
def test_a_directory_takes_what_its_import_will(tmp_path: Path, outtype: str) -> None:
    HFLlama(n_embd=256, n_ff=512, head_dim=64).write(tmp_path / "hf")
    before = set(tmp_path.rglob("*"))
    planned = estimate(tmp_path / "hf", outtype=outtype, n_ctx=256)
    assert set(tmp_path.rglob("*")) == before
    pyggml.convert(tmp_path / "hf", tmp_path / "model.gguf", outtype)
    real = estimate(tmp_path / "model.gguf", n_ctx=256)
    assert planned.outtype == outtype
    assert planned.weights_bytes == real.weights_bytes
    assert planned.cache_bytes == real.cache_bytes
    assert planned.compute_bytes == real.compute_bytes


@pytest.mark.slow_except("q8_0", "q4_0")
@pytest.mark.parametrize("outtype", ["q8_0", "q4_0", "q4_k_m", "q2_k"])
def test_a_file_takes_what_its_quantisation_will(tmp_path: Path, outtype: str) -> None:
    HFLlama(n_embd=256, n_ff=512, head_dim=64).write(tmp_path / "hf")
    pyggml.convert(tmp_path / "hf", tmp_path / "full.gguf", "f16")
    params = ffi.new("llama_model_quantize_params *", lib.llama_model_quantize_default_params())
    params.ftype = getattr(lib, f"LLAMA_FTYPE_MOSTLY_{outtype.upper()}")
    quantized = tmp_path / "quantized.gguf"
    assert lib.llama_model_quantize(os.fsencode(tmp_path / "full.gguf"), os.fsencode(quantized), params) == 0
    assert estimate(tmp_path / "full.gguf", outtype=outtype).weights_bytes == estimate(quantized).weights_bytes


def test_a_split_set(tmp_path: Path) -> None:
    """Its parts count together, also when they are made into another type."""
    whole = models.write_llama(tmp_path / "whole.gguf")
    split(whole, tmp_path)
    parts = sorted(tmp_path.glob("part-*.gguf"))
    assert len(parts) == 2
    for outtype in ("auto", "f16"):
        assert estimate(parts[0], outtype=outtype).devices[0].weights_bytes == (
            estimate(whole, outtype=outtype).devices[0].weights_bytes
        )


def split(whole: Path, directory: Path) -> None:
    """Writes a file as a set of two."""
    with GGUFReader(whole) as reader:
        names = list(reader.tensors)
        for i, part in enumerate((names[: len(names) // 2], names[len(names) // 2 :])):
            with pyggml.gguf.GGUFWriter(directory / f"part-{i + 1:05}-of-00002.gguf") as writer:
                for key in reader.metadata if i == 0 else ():
                    writer.set(key, reader.metadata[key], reader.value_type(key))
                writer.set("split.no", i, pyggml.gguf.ValueType.UINT16)
                writer.set("split.count", 2, pyggml.gguf.ValueType.UINT16)
                writer.set("split.tensors.count", len(names), pyggml.gguf.ValueType.INT32)
                for name in part:
                    info = reader.tensors[name]
                    writer.add_tensor(name, info.shape, info.type)
                for name in part:
                    writer.write_tensor(name, reader.tensor(name))


def test_nothing_is_left_behind(tmp_path: Path, tiny_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Planner(gguf_at(tiny_path), Placement()) as planner:
        planner.model(outtype="q8_0")
        assert len(list(tmp_path.rglob("*.gguf"))) == 1
        planner.model(outtype="q8_0")
    assert list(tmp_path.iterdir()) == []
    planner.close()


# --- what does not go -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_ctx", [100_000_000, 2_000_000_000, 2**31 - 257])
def test_absurd_contexts_do_not_fit(tiny_path: Path, n_ctx: int) -> None:
    planned = estimate(tiny_path, n_ctx=n_ctx)
    assert not planned.fits
    assert planned.total_bytes > planned.available_bytes
    assert planned.suggestions.n_ctx == models.N_CTX_TRAIN
    assert f"n_ctx={models.N_CTX_TRAIN}" in planned.advice


@pytest.mark.parametrize(
    "options",
    [
        {"n_ctx": 0},
        {"n_ctx": -1},
        {"n_ctx": 1.5},
        {"n_ctx": "large"},
        {"n_ctx": 2**31},
        {"n_ctx": 2**40},
        {"n_ctx": True},
        {"n_parallel": 0},
        {"n_parallel": 257},
        {"n_parallel": 8, "n_batch": 4},
        {"n_batch": 0},
        {"n_batch": 2**31},
        {"n_ubatch": 0},
        {"n_ubatch": -3},
        {"cache_type": "q9_9"},
        {"cache_type": None},
        {"n_gpu_layers": -2},
        {"n_gpu_layers": "some"},
        {"outtype": "q9_9"},
        {"outtype": 4},
        {"device": "cpu\0"},
    ],
    ids=str,
)
def test_bad_arguments(tiny_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameterError):
        estimate(tiny_path, **options)


def test_an_absent_device(tiny_path: Path) -> None:
    with pytest.raises(DeviceError, match="cuda:77"):
        estimate(tiny_path, device="cuda:77")


def test_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError):
        estimate(tmp_path / "nothing.gguf")
    (tmp_path / "text.gguf").write_text("hello, this is no model")
    with pytest.raises(ModelLoadError):
        estimate(tmp_path / "text.gguf")
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(errors.InferError):  # a checkpoint without a checkpoint
        estimate(tmp_path / "hf")


def test_a_file_that_was_cut(tmp_path: Path, tiny_path: Path) -> None:
    data = tiny_path.read_bytes()
    for part in (0.1, 0.5, 0.99):
        (tmp_path / "cut.gguf").write_bytes(data[: int(part * len(data))])
        with pytest.raises(ModelLoadError):
            estimate(tmp_path / "cut.gguf")


def test_a_shape_computes_nothing(tiny_path: Path) -> None:
    with Model(tiny_path, shape_only=True) as model, Model(tiny_path) as whole:
        assert model.metadata == whole.metadata
        assert (model.n_layer, model.n_params, model.size_bytes) == (whole.n_layer, whole.n_params, whole.size_bytes)
        with pytest.raises(InvalidParameterError, match="shape_only"):
            Context(model)
        with pytest.raises(TokenizerError, match="no vocabulary"):
            model.vocab.tokenize("hello")


# --- the search, on memories made up ----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class World:
    """A machine with main memory and GPUs, and a model of equal layers, in units of a byte."""

    main: int
    gpus: tuple[int, ...]
    n_layer: int
    layer: int
    cell: int
    fixed: int

    def memory_of(self, settings: ResolvedOptions) -> Sequence[DeviceMemory]:
        on_gpu = min(settings.n_gpu_layers, self.n_layer) if settings.n_gpu_layers >= 0 else self.n_layer
        on_gpu = on_gpu if self.gpus else 0
        layer = self.layer // (1 + (0 if settings.outtype == "auto" else 1 + OUTTYPES.index(settings.outtype)))
        cell = self.cell // (1 + SMALLER_CACHES.index(settings.cache_type))
        counts = [self.n_layer - on_gpu]
        counts += [on_gpu // len(self.gpus) + (i < on_gpu % len(self.gpus)) for i in range(len(self.gpus))]
        return [
            DeviceMemory(
                name="CPU" if i == 0 else f"GPU{i - 1}",
                weights_bytes=n * layer,
                cache_bytes=n * cell * settings.n_ctx,
                compute_bytes=self.fixed,
                vocabulary_bytes=0,
                repacked_bytes=0,
                originals_bytes=0,
                available_bytes=available,
            )
            for i, (n, available) in enumerate(zip(counts, (self.main, *self.gpus), strict=True))
        ]

    def is_good(self, settings: ResolvedOptions, devices: slice = slice(None)) -> bool:
        return all(m.total_bytes <= (1 - HEADROOM) * m.available_bytes for m in self.memory_of(settings)[devices])


def random_world(rng: random.Random) -> World:
    return World(
        main=rng.randrange(1, 2_000_000),
        gpus=tuple(rng.randrange(1, 2_000_000) for _ in range(rng.randrange(3))),
        n_layer=rng.randrange(1, 60),
        layer=rng.randrange(1, 60_000),
        cell=rng.randrange(1, 100),
        fixed=rng.randrange(10_000),
    )


SETTINGS = ResolvedOptions(n_ctx=1000)


def changed(**change: Any) -> ResolvedOptions:
    return dataclasses.replace(SETTINGS, **change)


@pytest.mark.slow
def test_suggestions_are_the_best_there_are() -> None:
    for seed in range(300):
        require_best(random.Random(seed))


def require_best(rng: random.Random) -> None:
    """Of all that could be suggested, looked at one by one."""
    world, limit = random_world(rng), rng.choice([100, 256, 1000, 4096, 10_000])
    found = suggest(SETTINGS, world.memory_of, Limits(limit, world.n_layer, OUTTYPES))
    fits = all(memory.fits for memory in world.memory_of(SETTINGS))
    sizes = [n for n in [*range(256, limit, 256), limit] if world.is_good(changed(n_ctx=n))]
    caches = [each for each in SMALLER_CACHES if world.is_good(changed(cache_type=each))]
    outtypes = [each for each in OUTTYPES if world.is_good(changed(outtype=each))]
    layers = [n for n in range(world.n_layer + 1) if world.is_good(changed(n_gpu_layers=n), slice(1, None))]
    assert found == Suggestions(
        n_ctx=max(sizes, default=None),
        cache_type=None if fits or not caches else caches[0],
        outtype=None if fits or not outtypes else outtypes[0],
        n_gpu_layers=max(layers, default=0) if world.gpus else None,
    )


def test_a_small_gpu_takes_some_layers() -> None:
    world = World(main=10_000, gpus=(1_000,), n_layer=20, layer=100, cell=0, fixed=0)
    assert most_gpu_layers(SETTINGS, world.memory_of, 20) == 9  # a tenth stays free
    assert tightest(world.memory_of(changed(n_gpu_layers=20))).name == "GPU0"
    assert most_gpu_layers(SETTINGS, dataclasses.replace(world, gpus=(50,)).memory_of, 20) == 0
    assert most_gpu_layers(SETTINGS, dataclasses.replace(world, gpus=(9_000,)).memory_of, 20) == 20


def test_types_the_engine_refuses_are_not_suggested() -> None:
    world = World(main=100_000, gpus=(), n_layer=1, layer=0, cell=1000, fixed=0)

    def memory_of(settings: ResolvedOptions) -> Sequence[DeviceMemory]:
        if settings.cache_type == "q8_0":
            raise InvalidParameterError("no such cache for this model")
        return world.memory_of(settings)

    settings = changed(n_ctx=256)
    assert suggest(settings, world.memory_of, Limits(256, 2, ())).cache_type == "q5_0"
    assert suggest(settings, memory_of, Limits(256, 2, ())).cache_type == "q5_0"


def test_nothing_fits() -> None:
    world = World(main=10, gpus=(), n_layer=1, layer=1_000_000, cell=1, fixed=100)
    assert suggest(SETTINGS, world.memory_of, Limits(512, 2, OUTTYPES)) == Suggestions(None, None, None, None)
    assert largest_n_ctx(SETTINGS, world.memory_of, 512) is None


# --- loading ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def long_path(model_dir: Path) -> Path:
    """A tiny Llama that was trained on 131,072 tokens, so it says."""
    return models.write_llama(model_dir / "long.gguf", context_length=131_072)


def test_auto_is_the_training_length_where_there_is_room(long_path: Path) -> None:
    assert estimate(long_path).n_ctx == 8192
    assert estimate(long_path, n_ctx="auto").n_ctx == 131_072
    with pyggml.load(long_path, n_ctx="auto", n_gpu_layers="auto") as llm:
        assert llm.n_ctx == 131_072
        assert llm.generate([5], max_tokens=3).token_ids
    with pyggml.Inference.cpu().use_auto(long_path, n_ctx="auto", n_gpu_layers="auto") as llm:
        assert llm.n_ctx == 131_072


def test_auto_keeps_within_what_the_engine_computes_rightly(model_dir: Path) -> None:
    path = models.write(
        model_dir / "limited.gguf",
        {**models.metadata_of(models.write_llama(model_dir / "unlimited.gguf")), "pyggml.context_limit": 300},
        models.llama_weights(),
    )
    assert estimate(path, n_ctx=256).suggestions.n_ctx == 300
    with pyggml.load(path, n_ctx="auto") as llm:
        assert llm.n_ctx == 300


LIMITED = """
import resource, sys
import pyggml
from pyggml.memory.estimate import estimate
from pyggml.units import bytes_text

path, spare = sys.argv[1], int(sys.argv[2])
with pyggml.load() as llm:  # what the process needs anyway
    llm.generate([5], max_tokens=2)
with open("/proc/self/status") as status:
    size = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmSize"))
resource.setrlimit(resource.RLIMIT_AS, (size + spare, resource.RLIM_INFINITY))
"""

IN_LIMITS = {
    "auto": """
with pyggml.load(path, n_ctx="auto", n_threads=1) as llm:
    assert 256 <= llm.n_ctx < 131_072, llm.n_ctx
    assert llm.generate([5] * 600, max_tokens=2).token_ids
""",
    "advice": """
try:
    pyggml.load(path, n_ctx=131_072, n_threads=1)
    raise SystemExit("it fitted")
except pyggml.OutOfMemoryError as error:
    assert error.required_bytes > error.available_bytes > 0
    assert bytes_text(error.required_bytes) in str(error) and bytes_text(error.available_bytes) in str(error)
    planned = estimate(path, n_ctx=131_072)
    assert not planned.fits
    assert 256 <= planned.suggestions.n_ctx < 131_072
    assert "n_ctx=" in str(error), error
with pyggml.load(path, n_ctx=planned.suggestions.n_ctx, n_threads=1) as llm:
    llm.generate([5], max_tokens=2)
""",
}


@pytest.mark.slow
@needs_proc
@pytest.mark.parametrize("case", IN_LIMITS)
def test_where_memory_is_short(long_path: Path, case: str) -> None:
    run_limited(IN_LIMITS[case], long_path, 120 * MB)


@pytest.mark.slow
@needs_proc
def test_where_there_is_no_memory(lay_wide: Callable[[str], Path]) -> None:
    program = """
try:
    pyggml.load(path, n_ctx="auto")
    raise SystemExit("it fitted")
except pyggml.OutOfMemoryError as error:
    assert error.required_bytes > 0.9 * error.available_bytes > 0, error
    assert "use weights quantised to" in str(error), error
"""
    run_limited(program, lay_wide("f16"), 250 * MB)


def run_limited(program: str, path: Path, spare: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED + program, path, str(spare)],
        capture_output=True,
        text=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"},
    )
    assert done.returncode == 0, done.stderr


def test_planning_logs_nothing(tiny_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """So the error is the first thing that a program with logging shows."""
    caplog.set_level(logging.DEBUG, "pyggml")
    with pytest.raises(OutOfMemoryError, match=r"needs .*; use "):
        pyggml.load(tiny_path, n_ctx=2_000_000_000)
    assert caplog.messages == []


@pytest.mark.slow
def test_plans_leave_the_available_memory_as_it_is(long_path: Path) -> None:
    """The C library keeps what a plan took unless it is told not to: then what a plan suggests would not fit."""
    program = """
available = [estimate(path, n_ctx=n_ctx).available_bytes for n_ctx in (256, 131_072, 256, 131_072, 256)]
assert max(available) - min(available) < 8e6, available
"""
    run_limited(program, long_path, 300 * MB)


@pytest.mark.slow
def test_out_of_memory_is_said_before_the_weights_are_read(tiny_path: Path) -> None:
    progress: list[float] = []
    with pytest.raises(OutOfMemoryError, match=f"n_ctx={models.N_CTX_TRAIN}"):
        pyggml.load(tiny_path, n_ctx=2_000_000_000, progress=progress.append)
    assert progress == []
