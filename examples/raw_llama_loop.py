"""Raw llama.cpp: load a model, tokenize a prompt and generate greedily, all through its own C API.

python examples/raw_llama_loop.py "Once upon a time" -m model.gguf

``pyggml.lib`` and ``pyggml.ffi`` are llama.cpp's C API as llama.h documents it. It is unguarded: a mistake ends the
process, as in C, and you must free what you create. pyggml's classes do the same with checks.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pyggml
from pyggml import ffi, lib

if TYPE_CHECKING:
    from pyggml._core.ffi import CData

N_PREDICT = 64


def load_model(path: str) -> CData:
    """Return a ``llama_model *``; free it with ``llama_model_free``."""
    model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
    if model == ffi.NULL:
        raise SystemExit(f"{path} could not be loaded")
    return model


def make_context(model: CData) -> CData:
    """Return a ``llama_context *``; free it with ``llama_free``."""
    params = lib.llama_context_default_params()
    params.n_ctx = 512
    params.n_threads = params.n_threads_batch = lib.pyg_cpu_count()  # one per core; llama.cpp's default is 4
    context = lib.llama_init_from_model(model, params)
    if context == ffi.NULL:
        raise SystemExit("the context could not be made")
    return context


def make_sampler() -> CData:
    """Return a chain that always takes the likeliest token; free it with ``llama_sampler_free``."""
    chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
    lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_greedy())  # the chain owns it from here on
    return chain


def tokenize(vocab: CData, text: str) -> CData:
    """Return an array of ``llama_token``."""
    data = text.encode()
    # Without a buffer it returns the negated number of tokens.
    n = -lib.llama_tokenize(vocab, data, len(data), ffi.NULL, 0, True, False)
    tokens = ffi.new("llama_token[]", n)
    lib.llama_tokenize(vocab, data, len(data), tokens, n, True, False)
    return tokens


def piece(vocab: CData, token: int) -> bytes:
    """Return the bytes of one token."""
    buffer = ffi.new("char[]", 256)
    n = lib.llama_token_to_piece(vocab, token, buffer, len(buffer), 0, False)
    return bytes(ffi.buffer(buffer, n))


def generate(context: CData, sampler: CData, vocab: CData, prompt: CData) -> None:
    """Print the prompt's continuation as it is generated."""
    # The batch borrows the tokens; positions continue automatically, and only the last token has logits.
    batch = lib.llama_batch_get_one(prompt, len(prompt))
    token = ffi.new("llama_token *")
    for _ in range(N_PREDICT):
        if lib.llama_decode(context, batch) != 0:
            raise SystemExit("decoding failed")
        token[0] = lib.llama_sampler_sample(sampler, context, -1)
        if lib.llama_vocab_is_eog(vocab, token[0]):
            break
        sys.stdout.buffer.write(piece(vocab, token[0]))
        sys.stdout.buffer.flush()
        batch = lib.llama_batch_get_one(token, 1)
    print()


def main() -> None:
    """Load, generate, and free everything in the reverse order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prompt", nargs="?", default="Once upon a time")
    parser.add_argument("-m", "--model", default=pyggml.SHIPPED_MODEL, help="GGUF file")
    args = parser.parse_args()
    with ExitStack() as owned:
        model = load_model(str(args.model))
        owned.callback(lib.llama_model_free, model)
        context = make_context(model)
        owned.callback(lib.llama_free, context)
        sampler = make_sampler()
        owned.callback(lib.llama_sampler_free, sampler)

        vocab = lib.llama_model_get_vocab(model)
        print(args.prompt, end="", flush=True)
        generate(context, sampler, vocab, tokenize(vocab, args.prompt))


if __name__ == "__main__":
    main()
