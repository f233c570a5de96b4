"""Facts from the header of a GGUF file."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from pyggml import families
from pyggml._core.checks import shown
from pyggml._native import quantization_mix
from pyggml._native.metadata_check import MetadataCheck, TensorMismatch, check_metadata, shorten_merges
from pyggml._native.model import TOKENIZER_JSON
from pyggml.diagnostics._adjacent_tokenizer import check_adjacent_tokenizer
from pyggml.diagnostics._facts import ModelFacts, Problems, Storage, TensorFacts, listed
from pyggml.diagnostics._vocabulary import vocabulary_of
from pyggml.diagnostics._weights import main_type
from pyggml.diagnostics.report import FileReport
from pyggml.errors import InferError, OutOfMemoryError, TokenizerError
from pyggml.files.model_files import ModelFiles
from pyggml.gguf import GGMLType, GGUFReader
from pyggml.tokenizer.hugging_face import open_tokenizer
from pyggml.units import counted

_NAMES = ("general.name", "general.basename", "general.finetune")
_TOKEN_ID = re.compile(r"tokenizer\.ggml\.(\w+)_token_id")
_IMPORTANT_IDS = ("bos", "eos", "eot", "eom")
# Tensors with a row for each token.
_ROW_PER_TOKEN = ("token_embd.weight", "output.weight", "output.bias")
# Keys of the vocabulary after "tokenizer.ggml." whose values are long.
_COLUMNS = ("tokens", "token_type", "scores", "merges", "precompiled_charsmap")
_LONG_LIST = 400
_MAX_FACTORS_BYTES = 4096


def read_gguf(files: ModelFiles) -> ModelFacts:
    """Read the headers of a file and of the others in its split set. The caller closes the model in the facts.

    Raises:
        ModelLoadError: its own header cannot be read.
    """
    path, problems = files.path, Problems()
    with ExitStack() as stack:
        first = stack.enter_context(GGUFReader(path, header_only=True))
        readers = list(_split_set(first, files, stack, problems))
        for reader in readers:
            _check_length(reader, problems)
        metadata = dict(_short_metadata(readers[0].metadata))
        tensors = [
            TensorFacts(info.name, info.type.name, math.prod(info.shape), info.nbytes)
            for reader in readers
            for info in reader.tensors.values()
        ]
        shorten_merges(readers[0])
        check = check_metadata([reader.handle for reader in readers], path)
        model = check.model
        match = families.of_gguf(metadata) if model is None else families.of_model(model)
        _check_engine(check, tensors, problems)
        vocabulary = None
        if model is not None:
            _check_ids(metadata, model.vocab.n_tokens, problems)
            check_adjacent_tokenizer(path, model.vocab, problems)
            try:
                open_tokenizer(None, model)
            except TokenizerError as error:
                problems.error("broken-tokenizer", str(error))
            pre = str(metadata.get("tokenizer.ggml.pre", "")) if model.vocab.type == "bpe" else ""
            tokenizer = "engine" if model.tokenizer_json is None else TOKENIZER_JSON
            vocabulary = vocabulary_of(model, match.family, pre, tokenizer)
    return ModelFacts(
        path=path,
        format=files.format,
        files=[FileReport(each.path, each.path.stat().st_size, len(each.tensors)) for each in readers],
        names=[str(metadata[key]) for key in _NAMES if key in metadata],
        tensors=tensors,
        n_params=sum(tensor.n_params for tensor in tensors),
        metadata=metadata,
        match=match,
        check=check,
        vocabulary=vocabulary,
        storage=_storage(metadata, tensors),
        is_tied=bool(tensors) and not any(tensor.name == "output.weight" for tensor in tensors),
        rope=_rope(readers),
        problems=problems,
    )


def _rope(readers: Sequence[GGUFReader]) -> dict[str, object]:
    """The scaling of Llama 3, which GGUF files store as a factor for each frequency: the largest of them counts."""
    for reader in readers:
        info = reader.tensors.get("rope_freqs.weight")
        if (
            info is not None
            and info.type == GGMLType.F32
            and info.nbytes <= _MAX_FACTORS_BYTES
            and info.offset + info.nbytes <= reader.path.stat().st_size
        ):
            factors = np.fromfile(reader.path, np.float32, info.nbytes // 4, offset=info.offset)
            return {"scaling": "llama3", "factor": float(max(factors, default=1.0))}
    return {}


def _split_set(first: GGUFReader, files: ModelFiles, stack: ExitStack, problems: Problems) -> Iterator[GGUFReader]:
    """The file or, if it is one of a set, all of them in order."""
    count, own = (
        value if isinstance(value := first.metadata.get(key), int) else 0 for key in ("split.count", "split.no")
    )
    if count < 2:
        yield first
        return
    if len(files.files) != count:
        problems.error(
            "wrong-file-name",
            f"{first.path.name} is one of {count} files, but its name does not end in -00001-of-{count:05d}.gguf, by "
            "which the others are found: give all of them their original names",
        )
        yield first
        return
    if own != 0:
        head = files.files[0].name
        problems.error("not-first-file", f"{first.path.name} is not the first of {count} files: name {head}")
    for i, path in enumerate(files.files):
        reader = first if i == own else _open(path, stack, problems)
        if reader is not None:
            yield reader


def _open(path: Path, stack: ExitStack, problems: Problems) -> GGUFReader | None:
    try:
        return stack.enter_context(GGUFReader(path, header_only=True))
    except FileNotFoundError:
        problems.error("missing-file", f"{path.name} is missing: copy or download it as well")
    except OutOfMemoryError:
        raise
    except InferError as error:
        problems.error("broken-file", str(error))
    return None


def _check_length(reader: GGUFReader, problems: Problems) -> None:
    needed = max((info.offset + info.nbytes for info in reader.tensors.values()), default=0)
    if reader.path.stat().st_size < needed:
        try:
            GGUFReader(reader.path).close()
        except InferError as error:
            problems.error("truncated", str(error))


def _check_engine(check: MetadataCheck, tensors: Sequence[TensorFacts], problems: Problems) -> None:
    """Add the problems that the engine finds."""
    if check.failed == "architecture":
        message = f"the engine does not know this kind of model: {check.message}. A newer version of pyggml may"
        problems.error("unknown-architecture", message)
    elif check.failed == "sizes":
        problems.error("broken-metadata", f"the engine cannot read the sizes of the model: {check.message}")
    elif check.failed == "vocabulary":
        problems.error("broken-vocabulary", f"the engine cannot read the vocabulary: {check.message}")
    elif not tensors:
        problems.error("no-tensors", "there are no weights in the file: it can only split text into tokens")
    else:
        _check_tensors(check, problems)


def _check_tensors(check: MetadataCheck, problems: Problems) -> None:
    n_tokens = 0 if check.model is None else check.model.vocab.n_tokens
    missing = [each.name for each in check.findings if each.found is None]
    rows = [each for each in check.findings if _is_about_tokens(each, n_tokens)]
    shapes = [each for each in check.findings if each.found is not None and each not in rows]
    if rows and rows[0].found is not None:
        problems.error(
            "tokenizer-disagrees",
            f"the vocabulary has {n_tokens} tokens, but {shown(rows[0].name)} has {rows[0].found[0]} rows: the "
            "tokenizer in the file belongs to another model; convert it again from the original",
        )
    if missing:
        problems.error(
            "missing-tensor",
            f"{counted(len(missing), 'tensor')} missing: {listed(missing)}. Convert or download the model again",
        )
    if shapes:
        first = shapes[0]
        problems.error(
            "wrong-shape",
            f"{counted(len(shapes), 'tensor')} of a wrong shape: {shown(first.name)} is {first.found}, but the "
            f"metadata implies {first.expected}. Convert or download the model again",
        )
    if check.unknown:
        problems.error(
            "unknown-tensor",
            f"{counted(len(check.unknown), 'tensor')} too many for such a model: {listed(check.unknown)}. It may "
            "have another architecture than its metadata names, or need a newer version of pyggml",
        )
    if check.failed and not (missing or shapes or rows):
        problems.error("engine-refuses", f"the engine does not accept the tensors: {check.message}")


def _is_about_tokens(finding: TensorMismatch, n_tokens: int) -> bool:
    return (
        finding.name in _ROW_PER_TOKEN
        and finding.found is not None
        and finding.expected[0] == n_tokens != finding.found[0]
        and finding.expected[1:] == finding.found[1:]
    )


def _check_ids(metadata: Mapping[str, object], n_tokens: int, problems: Problems) -> None:
    for key, value in metadata.items():
        match = _TOKEN_ID.fullmatch(key)
        if match and isinstance(value, int) and not 0 <= value < n_tokens:
            add = problems.error if match[1] in _IMPORTANT_IDS else problems.warning
            add(
                "bad-token-id",
                f"{key} is {value}, but the vocabulary has only {n_tokens} tokens: the engine takes another one, or "
                "none. Set it to the id of the right token",
            )


def _short_metadata(metadata: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """The metadata without long values, for the report."""
    for key in metadata:
        if key == TOKENIZER_JSON or (key.startswith("tokenizer.ggml.") and key.rsplit(".", 1)[1] in _COLUMNS):
            continue
        value = metadata[key]
        yield key, value.tolist() if isinstance(value, np.ndarray) and value.size <= _LONG_LIST else value


def _storage(metadata: Mapping[str, object], tensors: Sequence[TensorFacts]) -> Storage:
    given = metadata.get("general.file_type")
    name = quantization_mix.file_type_name(given) if isinstance(given, int) else None
    return Storage(main_type(tensors) if name is None else name, "gguf")
