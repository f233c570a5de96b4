"""Write the trained network and its tokenizer as one GGUF file, and read such a file back."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import torch
from tokenizers import Tokenizer

from .corpus import CHAT_TEMPLATE, END_OF_TEXT, END_OF_TURN
from .network import Config, Llama
from .vocabulary import PRE_TOKENIZER, SPECIAL_TOKENS, merges, special_id

NAME = "pyggml demo"
DESCRIPTION = (
    "A demonstration model that ships with pyggml: short stories of a simple world, plain facts and small "
    "sums. Made by tools/train_demo_model.py from a corpus which that script generates. Not an assistant."
)


def write_gguf(path: Path, network: Llama, tokenizer: Tokenizer) -> None:
    """Write the model: matrices as Q8_0, norms as F32. The file appears whole or not at all."""
    partial = path.with_suffix(".partial")
    writer = gguf.GGUFWriter(partial, "llama")
    _add_description(writer)
    _add_hyper_parameters(writer, network.config)
    _add_tokenizer(writer, tokenizer)
    _add_tensors(writer, network)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    partial.replace(path)


def _add_description(writer: gguf.GGUFWriter) -> None:
    writer.add_type(gguf.GGUFType.MODEL)
    writer.add_name(NAME)
    writer.add_description(DESCRIPTION)
    writer.add_license("mit")
    writer.add_languages(["en"])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_float32("general.sampling.temp", 0.0)  # recommended: its likeliest answers are its best ones


def _add_hyper_parameters(writer: gguf.GGUFWriter, config: Config) -> None:
    writer.add_vocab_size(config.n_vocab)
    writer.add_context_length(config.n_ctx)
    writer.add_embedding_length(config.n_embd)
    writer.add_block_count(config.n_layer)
    writer.add_feed_forward_length(config.n_ff)
    writer.add_head_count(config.n_head)
    writer.add_head_count_kv(config.n_head_kv)
    writer.add_rope_dimension_count(config.n_head_dim)
    writer.add_rope_freq_base(config.rope_base)
    writer.add_layer_norm_rms_eps(config.norm_eps)


def _add_tokenizer(writer: gguf.GGUFWriter, tokenizer: Tokenizer) -> None:
    ids = tokenizer.get_vocab()
    tokens = sorted(ids, key=ids.__getitem__)
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(PRE_TOKENIZER)
    writer.add_token_list(tokens)
    writer.add_token_types([control if token in SPECIAL_TOKENS else normal for token in tokens])
    writer.add_token_merges(merges(tokenizer))
    end = special_id(tokenizer, END_OF_TEXT)
    writer.add_bos_token_id(end)
    writer.add_eos_token_id(end)
    writer.add_pad_token_id(end)
    writer.add_eot_token_id(special_id(tokenizer, END_OF_TURN))
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def _add_tensors(writer: gguf.GGUFWriter, network: Llama) -> None:
    q8_0 = gguf.GGMLQuantizationType.Q8_0
    for name, tensor in network.state_dict().items():
        data = tensor.detach().float().numpy()
        if data.ndim == 1:
            writer.add_tensor(name, data)
        else:
            writer.add_tensor(name, gguf.quants.quantize(data, q8_0), raw_dtype=q8_0)


def read_weights(path: Path, config: Config) -> Llama:
    """The network with the weights of a file, dequantised: what the engine computes with, but in PyTorch."""
    network = Llama(config)
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    state = {
        name: torch.from_numpy(np.array(gguf.quants.dequantize(tensors[name].data, tensors[name].tensor_type)))
        for name in network.state_dict()
    }
    network.load_state_dict(state)
    network.eval()
    return network
