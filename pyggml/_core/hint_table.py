"""What users of other libraries type, and what to type here: the ends of messages, and names of the command's options.

A table's value is the name of the thing here, or a sentence that says how it is done. Names that are only misspelled
are not listed: the nearest one is found.
"""

from __future__ import annotations

from collections.abc import Mapping

Answers = Mapping[str, str]


def _each(names: str, answer: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), answer)


_SET_BY_LOAD = "it is chosen when the model is loaded, by pyggml.load"
_STREAM = "stream(prompt) and stream_chat(messages) yield an answer while it is generated"
_SEVERAL = "generate_n(prompt, n) makes several completions of one prompt"

#: Sampling parameters and what else is passed with them: llama-cpp-python, vLLM, transformers, ollama, mlx_lm, OpenAI.
SAMPLING: Answers = {
    **_each("max_new_tokens max_completion_tokens max_gen_len max_length n_predict num_predict predict", "max_tokens"),
    **_each("max_output_tokens limit", "max_tokens"),
    **_each("min_tokens min_new_tokens min_length", "there is no minimum; ignore_eos=True goes on to max_tokens"),
    **_each("temp", "temperature"),
    **_each("repetition_penalty", "repeat_penalty"),
    **_each("repeat_last_n last_n_tokens last_n_tokens_size repetition_context_size", "penalty_last_n"),
    **_each("typical typ_p", "typical_p"),
    **_each("top_nsigma", "top_n_sigma"),
    **_each("dynatemp_exp", "dynatemp_exponent"),
    **_each("dry_sequence_breaker", "dry_sequence_breakers"),
    **_each("mirostat_ent", "mirostat_tau"),
    **_each("mirostat_lr", "mirostat_eta"),
    **_each("mirostat_mode", "mirostat"),
    **_each("min_tokens_to_keep", "min_keep"),
    **_each("random_seed", "seed"),
    **_each("stop_strings stop_sequences stop_words reverse_prompt", "stop"),
    **_each("eos_token_id", "stop_token_ids"),
    **_each("format guided_json guided_decoding structured_outputs schema", "json_schema"),
    **_each("guided_grammar", "grammar"),
    **_each("guided_choice choices", "json_schema={'enum': ['yes', 'no']} chooses one, and so does a grammar"),
    **_each("guided_regex regex", "a grammar, or a schema with a 'pattern', says what the text looks like"),
    **_each("options", "options are arguments of their own: chat(messages, temperature=0.8, max_tokens=100)"),
    **_each("sampler", "there is no object for it: temperature, top_k, top_p and the others are arguments"),
    **_each("top_logprobs n_probs", "logprobs"),
    **_each("max_time timeout", "timeout_s"),
    **_each("stream streamer", _STREAM),
    **_each("callback callbacks on_token", f"there is no callback: {_STREAM}"),
    **_each("raw", "generate sends the prompt as it is, chat applies the model's template"),
    **_each("n num_return_sequences best_of", _SEVERAL),
    **_each("prompts", "generate_batch(prompts) takes several prompts"),
    **_each("messages", "chat(messages) answers messages"),
    **_each("sampling_params generation_config", "SamplingParams are passed as 'params'"),
    **_each("do_sample", "temperature decides: 0 picks the likeliest token, more than 0 draws one"),
    **_each("num_beams", "there is no beam search; a temperature of 0 picks the likeliest token at each step"),
    **_each("top_a tfs_z", "there is no such sampler; min_p and top_p cut off unlikely tokens"),
    **_each(
        "logits_processor logits_processors",
        "Python is not called for each token; logit_bias, grammar and json_schema shape the choice, and Context.decode "
        "with Sampler leaves it to you",
    ),
    **_each(
        "stopping_criteria", "stop and stop_token_ids end a generation, and so does leaving the loop over stream()"
    ),
    **_each("echo return_full_text", "the prompt is not repeated: prompt + completion.text is the whole text"),
    **_each("suffix", "there is no filling in; write the model's own tokens for it into the prompt"),
    **_each("skip_special_tokens", "the text has no special tokens; detokenize(completion.token_ids) shows them"),
    **_each("functions", "chat(messages, tools=[...]) takes functions"),
    **_each("function_call", "chat(messages, tools=[...], tool_choice=...) chooses one"),
    **_each("tools tool_choice", "chat(messages, tools=[...]) calls tools"),
    **_each("chat_template chat_format", "chat(messages, chat_template=...) takes a template; generate uses none"),
    **_each("chat_template_kwargs", "chat(messages, template_kwargs={...}) passes them to the template"),
    **_each("enable_thinking think", "chat(messages, thinking=False) answers without reasoning"),
    **_each("reasoning_effort", "chat(messages, template_kwargs={'reasoning_effort': ...}) passes it to the template"),
    **_each("system system_prompt", "it is a message: chat([{'role': 'system', 'content': ...}, ...])"),
    **_each("images image audio", "models only read text here"),
    **_each("keep_alive", "the model stays loaded until llm.close()"),
    **_each("model", "the model is the one that was loaded"),
    **_each("num_ctx n_ctx n_threads num_thread n_gpu_layers num_gpu n_batch num_batch device", _SET_BY_LOAD),
    **_each(
        "use_cache cache_prompt", "beginnings that prompts share are reused; load(prefix_cache=False) turns that off"
    ),
}

#: Other arguments for a prompt.
PROMPTS: Answers = _each("input_ids prompt_token_ids inputs", "token ids are a prompt too: llm.generate(token_ids)")

_GENERATES = "it is an argument of generate and chat, or a field of SamplingParams"
_REFERENCE = "a model on the hub is one text: source='hf:org/repo' or 'hf:org/repo:file.gguf'"
_SILENT = "the engine says nothing; its messages go to logging.getLogger('pyggml')"
_PARALLEL = "device='auto' uses all GPUs, layer by layer; split_mode='tensor' gives each a part of each layer"
_AS_STORED = "weights are used as the file has them; pyggml.quantize and pyggml.convert make others"

#: Options for loading a model, from the same libraries and ctransformers.
LOADING: Answers = {
    **_each("model model_path model_id model_name model_name_or_path pretrained_model_name_or_path path", "source"),
    **_each("tokenizer_path tokenizer_name", "tokenizer"),
    **_each("max_model_len max_context max_context_length context_length ctx_size num_ctx max_seq_len", "n_ctx"),
    **_each("max_seq_length max_kv_size context_size", "n_ctx"),
    **_each("max_num_seqs n_seq_max num_parallel parallel", "n_parallel"),
    **_each("batch_size max_num_batched_tokens num_batch", "n_batch"),
    **_each("ubatch_size", "n_ubatch"),
    **_each("type_k type_v kv_cache_dtype cache_type_k cache_type_v", "cache_type"),
    **_each("gpu_layers num_gpu ngl", "n_gpu_layers"),
    **_each("threads num_threads num_thread", "n_threads"),
    **_each("device_map devices device_id gpu_ids", "device"),
    **_each("gpu use_gpu cuda", "device='auto', the default, uses the GPUs that this build can; 'gpu' insists on one"),
    **_each("gpus num_gpus n_gpu", "device='cuda:0,cuda:1' names GPUs; 'auto', the default, uses all that there are"),
    **_each("enable_prefix_caching", "prefix_cache"),
    **_each("repo_id filename model_file hf hf_repo hf_file revision", f"{_REFERENCE}, with '@' before a revision"),
    **_each(
        "token hf_token use_auth_token", "the token is read from HF_TOKEN, or from where the hub's own login put it"
    ),
    **_each("cache_dir local_dir download_dir", "downloads go to the hub's own cache; set HF_HOME to move it"),
    **_each("local_files_only offline", "set HF_HUB_OFFLINE=1"),
    **_each("n_threads_batch threads_batch", "n_threads is for prompts too; None lets the engine choose for each"),
    **_each("tensor_parallel_size", _PARALLEL),
    **_each("pipeline_parallel_size", "device='cuda:0,cuda:1' divides the layers between GPUs, as tensor_split says"),
    **_each("cpu_moe", "n_cpu_moe='all' keeps the experts of all layers in main memory"),
    **_each("override_tensors tensor_buft_overrides", "override_tensor"),
    **_each("max_memory cpu_offload_gb", "n_gpu_layers='auto' puts on the GPUs what fits, or tensor_split divides"),
    **_each(
        "offload_kqv", "the cache is where its layers are; Context(model, offload_kqv=False) keeps it in main memory"
    ),
    **_each("gpu_memory_utilization", "n_ctx='auto' and n_gpu_layers='auto' take what is free, less a tenth"),
    **_each("verbose verbosity log_level", _SILENT),
    **_each("chat_format", "chat_template"),
    **_each("chat_handler clip_model_path mmproj", "models only read text here"),
    **_each(
        "use_mmap use_mlock", "weights are mapped; pyggml.Model(path, use_mlock=True) can be loaded in place of a path"
    ),
    **_each("vocab_only", "pyggml.Model(path, vocab_only=True) reads only the vocabulary"),
    **_each("embedding embeddings task runner", "embed(texts) works with any model; there is nothing to turn on"),
    **_each("logits_all", "logits(prompt), logprobs and prompt_logprobs need no preparation"),
    **_each("seed temp temperature top_k top_p min_p max_tokens stop grammar json_schema", _GENERATES),
    **_each("system system_prompt", SAMPLING["system"]),
    **_each("dtype torch_dtype quantization quantization_config load_in_4bit load_in_8bit", _AS_STORED),
    **_each("trust_remote_code", "no code of a checkpoint is run, so there is nothing to trust"),
    **_each("model_type", "the file says what it is; pyggml.Qwen3(source) and the like accept one family only"),
    **_each("lora_path lora_base lora enable_lora", "adapters are not applied; merge them into the model first"),
    **_each("draft_model speculative_model speculative_config", "there is no speculative decoding"),
    **_each(
        "rope_freq_base rope_freq_scale rope_scaling rope_scaling_type",
        "the file's own scaling is used; Context(model, rope_freq_base=...) replaces it",
    ),
    **_each("flash_attn", "the engine turns it on by itself; Context(model, flash_attn='off') turns it off"),
}

_GENERATE = "llm.generate(prompt) returns a completion, llm.stream(prompt) yields it while it is generated"
_CHAT = "llm.chat(messages) returns an answer, llm.stream_chat(messages) yields it while it is generated"
_LOAD = "pyggml.load(source) loads a .gguf file, a Hugging Face directory, or 'hf:org/repo'"

#: Methods and attributes of a model.
MODEL: Answers = {
    **_each("__call__", _GENERATE),
    **_each("__iter__", "it is one object, and llm.tokenizer is its tokenizer"),
    **_each("create_completion complete completion completions generate_text predict invoke run prompt", _GENERATE),
    **_each("create_chat_completion create_chat_completion_openai_v1 chat_completion ask respond responses", _CHAT),
    **_each("conversation chat_session start_chat history", f"a conversation is a list that you keep: {_CHAT}"),
    **_each("stream_generate generate_stream", _STREAM),
    **_each("chat_stream astream_generate", "stream_chat(messages), or astream_chat(messages) in a coroutine"),
    **_each("ainvoke acomplete generate_async", "await llm.agenerate(prompt), or await llm.achat(messages)"),
    **_each("batch batch_generate generate_many", "llm.generate_batch(prompts)"),
    **_each("count_tokens token_count get_num_tokens", "len(llm.tokenize(text))"),
    **_each("system_prompt", SAMPLING["system"]),
    **_each("encode", "llm.tokenize(text) makes token ids, llm.embed(texts) vectors"),
    **_each("decode", "llm.detokenize(token_ids) makes text"),
    **_each("create_embedding embeddings get_embeddings embed_query embed_documents", "llm.embed(texts)"),
    **_each("score", "llm.rerank(query, documents), or logprobs and prompt_logprobs of llm.generate"),
    **_each("get_tokenizer", "llm.tokenizer"),
    **_each("chat_template", "llm.chat_templates() has it, llm.apply_chat_template(messages) applies it"),
    **_each("from_pretrained load", _LOAD),
    **_each("to cuda cpu", "a model stays where it was loaded: pyggml.load(source, device='cuda')"),
    **_each("config", "llm.metadata has the file's, llm.model the sizes"),
    **_each("n_vocab vocab_size", "llm.model.vocab.n_tokens"),
    **_each("eos_token_id is_eos_token", "llm.stop_tokens has the tokens that end an answer"),
    **_each("token_bos token_eos token_nl", "llm.model.vocab.bos, .eos and .nl"),
    **_each("n_embd", "llm.model.n_embd"),
    **_each("context_length", "llm.n_ctx"),
    **_each("save_state load_state", "beginnings of prompts are kept by themselves; Context.state_save keeps one"),
    **_each("set_cache", "beginnings of prompts are kept by themselves; pyggml.load(prefix_cache=...)"),
    **_each("set_seed", "llm.generate(prompt, seed=...)"),
    **_each("eval sample", "pyggml.Context.decode and pyggml.Sampler go step by step"),
    **_each("unload free", "llm.close()"),
}

_ENCODE = "llm.tokenizer.encode(text) makes token ids"
_TEXT_OF = "llm.tokenizer.vocab.text(token_id) is the text of one of vocab.bos, vocab.eos and the like"

#: Methods and attributes of a tokenizer.
TOKENIZER: Answers = {
    **_each("__call__ tokenize encode_plus batch_encode_plus", _ENCODE),
    **_each("batch_decode", "llm.tokenizer.decode(token_ids) takes those of one text"),
    **_each("apply_chat_template", "llm.apply_chat_template(messages)"),
    **_each("bos_token_id", "llm.tokenizer.vocab.bos"),
    **_each("eos_token_id", "llm.tokenizer.vocab.eos; llm.stop_tokens has all that end an answer"),
    **_each("pad_token_id", "llm.tokenizer.vocab.pad"),
    **_each("bos_token eos_token pad_token unk_token", _TEXT_OF),
    **_each("vocab_size", "llm.tokenizer.vocab.n_tokens"),
    **_each("get_vocab", "llm.tokenizer.vocab.texts"),
    **_each("all_special_ids", "llm.tokenizer.vocab.special_ids"),
    **_each("convert_tokens_to_ids token_to_id", "llm.tokenizer.vocab.find(text)"),
    **_each("convert_ids_to_tokens id_to_token", "llm.tokenizer.piece(token_id)"),
    **_each("chat_template", "llm.chat_templates() has it, llm.apply_chat_template(messages) applies it"),
    **_each("from_pretrained from_file", "pyggml.open_tokenizer(path, model)"),
}

_NO_TENSORS = "token ids are a list of integers: no tensors, padding or mask"

#: Arguments of methods that make token ids of texts, and texts of token ids.
ENCODING: Answers = {
    **_each("add_bos add_special_tokens", "it is 'add_special' here"),
    **_each("special", "it is 'parse_special' here"),
    **_each("return_tensors padding truncation max_length return_attention_mask", _NO_TENSORS),
}
DECODING: Answers = {
    **_each("skip_special_tokens", "unparse_special=False leaves them out"),
    **_each("special", "it is 'unparse_special' here"),
    **_each("clean_up_tokenization_spaces", "the text comes back as it was, so nothing has to be cleaned"),
}

#: Arguments of the function that converts a checkpoint.
CONVERTING: Answers = {
    **_each("quantize q_bits dtype quantization", "outtype='q4_k_m' and the like choose the type of the weights"),
    **_each("hf_path model model_path model_name", "it is 'hf_dir' here"),
    **_each("mlx_path outfile output output_dir", "it is 'out' here"),
}

#: What OpenAI's client has below ``chat.completions``, and a call of that itself.
OPENAI: Answers = _each("__call__ create parse stream", _CHAT)

#: Names of the package.
PACKAGE: Answers = {
    **_each("load_model from_pretrained from_file get_model pipeline", _LOAD),
    **_each("AutoModel AutoModelForCausalLM LlamaCpp LLMEngine AsyncLLMEngine AsyncLLM", _LOAD),
    **_each(
        "Client AsyncClient OpenAI",
        f"no server is needed here; {_LOAD}. 'pyggml serve' in a shell answers such clients",
    ),
    **_each("chat", f"load a model first: {_CHAT}"),
    **_each("complete completion", f"load a model first: {_GENERATE}"),
    **_each("generate stream stream_generate", f"load a model first: {_GENERATE}"),
    **_each("embed embeddings", "load a model first: llm.embed(texts)"),
    **_each("tokenize encode", "load a model first: llm.tokenize(text)"),
    **_each("AutoTokenizer LlamaTokenizer", "llm.tokenizer, or pyggml.open_tokenizer(path, model)"),
    **_each("AutoConfig show", "pyggml.inspect(source) tells what a model is"),
    **_each("GenerationConfig GenerateConfig make_sampler", "pyggml.SamplingParams"),
    **_each("LlamaGrammar", "pyggml.Grammar"),
    **_each("BitsAndBytesConfig", "pyggml.quantize(source, path, 'q4_k_m') makes a smaller file"),
    **_each("TextStreamer TextIteratorStreamer", _STREAM),
    **_each("LogitsProcessor LogitsProcessorList", SAMPLING["logits_processor"]),
    **_each("set_seed", "llm.generate(prompt, seed=...)"),
    **_each("list list_models ps", "pyggml.cache.cache_entries() has imports, pyggml.hub.downloads() downloads"),
    **_each("pull download snapshot_download", "pyggml.load('hf:org/repo') downloads a model and loads it"),
    **_each("cuda is_gpu_available gpu_available", "pyggml.devices() lists what this build can use"),
    **_each("set_verbose set_log_level", _SILENT),
    **_each("version", "pyggml.__version__"),
    **_each("llama_cpp ggml", "pyggml.lib and pyggml.ffi are the raw C API"),
}

_TEMPLATE_TEXT = "the result is a text: llm.tokenize(llm.apply_chat_template(messages)) makes a list of token ids"

#: Parameters of transformers' ``apply_chat_template``.
TEMPLATE: Answers = {
    **_each("tokenize return_tensors return_dict return_assistant_tokens_mask", _TEMPLATE_TEXT),
    **_each("padding truncation max_length", "the result is a text, and a prompt that is too long is refused"),
    **_each(
        "continue_final_message", "chat(messages, continue_final_message=True) does that; add the beginning to the text"
    ),
}

_OPENAI = "to_dict('openai') has the form of OpenAI's API"

#: Keys and attributes of a completion, and of what a chat returns.
COMPLETION: Answers = {
    **_each("0 __iter__", "it is one answer, and .text is the text; llm.stream(prompt) yields it in pieces"),
    **_each("choices outputs", f".text is the text; {_OPENAI}"),
    **_each("content response generated_text output_text", ".text is the text"),
    **_each("message", f".text is the text, and llm.chat(messages) returns a message; {_OPENAI}"),
    **_each("usage", f".prompt_tokens, .cached_tokens and len(completion.token_ids) count tokens; {_OPENAI}"),
    **_each("completion_tokens generated_tokens eval_count", "len(completion.token_ids)"),
    **_each("tokens", ".token_ids"),
    **_each("id object created model", _OPENAI),
}
CHAT_COMPLETION: Answers = {
    **COMPLETION,
    **_each("0 __iter__", "it is one answer, .message is the message; llm.stream_chat(messages) yields it in pieces"),
    **_each("choices outputs", f".message is the answer, .message.content its text; {_OPENAI}"),
    **_each("content response generated_text output_text role", ".message.content is the text"),
    **_each("tool_calls", ".message.tool_calls"),
    **_each("reasoning_content thinking", ".message.reasoning_content"),
}
MESSAGE: Answers = {
    **_each("text", ".content is the text"),
    **_each("function_call", ".tool_calls has the calls"),
}
CHUNK: Answers = {
    **_each("choices delta content response", f".text is the new text; {_OPENAI}"),
    **_each("message", f".text is the new text, and llm.stream_chat(messages) yields pieces of a message; {_OPENAI}"),
    **_each("usage", "stream.completion has the counts after the last chunk"),
    **_each("id object created model", _OPENAI),
}
CHAT_CHUNK: Answers = {
    **CHUNK,
    **_each("choices delta message response", f".content is the new text of the message; {_OPENAI}"),
}
