"""What other tools call commands and options, and what to type here.

The names that ``HABITS`` of :class:`~pyggml.sampling.SamplingParams` and of the options for loading have for a
parameter work as options, unless they are listed here.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

#: Group of commands -> another name of one of its commands -> its own.
ALIASES = {
    "pyggml": {"run": "chat", "server": "serve", "llama-server": "serve", "rpc-server": "rpc-serve"},
    "cache": {"ls": "list", "remove": "rm", "delete": "rm", "pull": "get", "download": "get"},
}

_CHAT_OR_GENERATE = "'pyggml chat {-m MODEL}' talks with a model, 'pyggml generate -m MODEL -p PROMPT' continues a text"
_LIST = "'pyggml cache list' shows the models on this machine"
_GET = "'pyggml cache get {hf:org/repo}' downloads a model"
_REMOVE = "'pyggml cache rm {NAME}' removes a model"
_INSPECT = "'pyggml inspect {MODEL}' shows what a model is"
_CONVERT = "'pyggml convert {DIRECTORY OUT}' makes a GGUF file of a Hugging Face directory"
_SERVE = "'pyggml serve {MODEL}' serves models over HTTP"
_IN_PYTHON = "there is no such command: pyggml.load(MODEL).{call} does it in Python"
_EMBED = _IN_PYTHON.format(call="embed([TEXT, ...])")
_TOKENIZE = _IN_PYTHON.format(call="tokenize(TEXT)")
_NOTHING_RUNS = "nothing runs in the background here: a model is in memory while its command runs"

# Commands of ollama, llm, llama.cpp, transformers, mlx_lm, vllm and hf -> what to type here. What is in braces stands
# for the rest of the command line; "{hf:...}" for the reference that it means.
_COMMANDS = {
    "show info": _INSPECT,
    "list ls models": _LIST,
    "ps stop": f"{_NOTHING_RUNS}; {_LIST}",
    "rm remove delete": _REMOVE,
    "pull download get add install": _GET,
    "api start": _SERVE,
    "ui webui": "'pyggml serve {MODEL}' has a page for chatting at its address",
    "search find browse": "huggingface.co has models: 'pyggml chat -m hf:org/repo' downloads one and talks with it",
    "prompt complete completions simple test llama-simple llama-completion": "'pyggml generate {PROMPT}' continues "
    "a text; 'pyggml chat QUESTION' answers a question; 'pyggml completion SHELL' is for shells",
    "repl ask talk interactive": "'pyggml chat {-m MODEL}' talks with a model",
    "llama-cli llama-run llama cli main": _CHAT_OR_GENERATE,
    "embed embeddings embedding embed-multi llama-embedding": _EMBED,
    "tokenize tokens token-count llama-tokenize": _TOKENIZE,
    "logs": "nothing is logged: 'pyggml chat' keeps a conversation with /save FILE, and --stats shows speed",
    "create": "there is nothing to create: 'pyggml chat -m MODEL --system TEXT' sets what a Modelfile would, "
    "'pyggml convert' and 'pyggml quantize' make files",
    "push upload": "pyggml uploads nothing: 'hf upload ORG/REPO FILE' does",
    "cp copy": "models are files: 'cp' copies them, and 'pyggml cache list' shows where they are",
    "convert_hf_to_gguf convert_hf_to_gguf.py convert-hf-to-gguf hf-to-gguf import": _CONVERT,
    "quantise llama-quantize quant": "'pyggml quantize {SOURCE OUT TYPE}' makes a GGUF file smaller",
    "llama-imatrix": "'pyggml imatrix TEXT OUT -m MODEL' computes an importance matrix",
    "llama-perplexity ppl evaluate eval": "'pyggml perplexity TEXT -m MODEL' measures how well a model predicts a text",
    "llama-bench benchmark": "'pyggml bench {-m MODEL}' measures speed",
    "gguf-dump gguf_dump gguf": _INSPECT,
    "gguf-split llama-gguf-split split merge": "split files load as they are: name the first one",
    "env collect-env system-info diagnose check": "'pyggml doctor' shows what this installation and machine can do",
    "login logout signin signout auth keys": "pyggml has no accounts: 'hf auth login', or HF_TOKEN, is for models "
    "that the hub gives only to you",
    "lora fuse finetune train": "pyggml does not train: merge an adapter into its model with peft's merge_and_unload, "
    "and convert the result",
    "templates schemas aliases plugins tools": "there is no such command: 'pyggml --help' lists those there are",
}

_ONE_TYPE = "keys and values have one type here: --cache-type TYPE sets it"
_NO_CPU_SETTINGS = "there is no such setting: -t N is the number of threads, and without it they adapt to the machine"
_TENSOR_PARALLEL = (
    "--device cuda:0,cuda:1 uses both GPUs, layer by layer; --split-mode tensor gives each a part of each layer"
)
_OF_THE_MODEL = "it is read from the model"
_MMAP = "there is no such setting: the file is mapped, and the system keeps in memory what is used"
_NO_ADAPTERS = (
    "adapters are not supported: merge it into its model with peft's merge_and_unload, and convert the result"
)
_NO_PICTURES = "pictures and sound are not supported: models read and write text here"
_NO_DRAFTS = "speculative decoding is not supported"
_NO_TEMPLATE = "not needed: 'pyggml generate' continues the text as it is; 'pyggml chat' uses the model's chat template"
_TO_CHAT = "type 'pyggml chat' to talk with the model"
_QUIET = "not needed: the engine is silent; --stats shows tokens and speed, --debug where an error came from"
_STREAMS = "not needed: text appears as it is generated; --json prints it at the end"
_SYSTEM = "a plain text has no system message: 'pyggml chat --system TEXT' has"

# Options of the same tools for commands that generate. Those that a command has are not refused by it.
_OPTIONS = {
    "-ctk -ctv --cache-type-k --cache-type-v --type-k --type-v": _ONE_TYPE,
    "--kv-bits": "--cache-type q8_0 or q4_0 quantises the cache",
    "-fa --flash-attn": "not needed: flash attention is used where the device has it",
    "--mlock --no-mlock --mmap --no-mmap --use-mmap --load-mode": _MMAP,
    "-tb --threads-batch": "not needed: -t N sets the threads for prompts and tokens, and without it they adapt",
    "-C --cpu-mask -Cr --cpu-range --cpu-strict --prio --poll --numa": _NO_CPU_SETTINGS,
    "-tp --tensor-parallel-size": _TENSOR_PARALLEL,
    "--list-devices": "'pyggml doctor' shows the devices that this build can use",
    "--gpu-memory-utilization": "not needed: memory is planned before anything is read; --n-ctx auto takes what fits",
    "--rope-scaling --rope-scale --rope-freq-base --rope-freq-scale --yarn-orig-ctx": f"not needed: {_OF_THE_MODEL}",
    "--lora --lora-scaled --adapter-path --control-vector": _NO_ADAPTERS,
    "-mm --mmproj --image --audio --video -a --attachment": _NO_PICTURES,
    "-md --model-draft --draft-model --draft --draft-max --spec-type": _NO_DRAFTS,
    "-hff --hf-file": "name the file after a colon: -hf org/repo:FILE",
    "-hft --hf-token": "set HF_TOKEN, or log in once with 'hf auth login'",
    "-mu --model-url": "download the file, or name its repository: -m hf:org/repo:FILE",
    "--offline": "set HF_HUB_OFFLINE=1",
    "--trust-remote-code": "not needed: no code of a model is ever run",
    "--dtype --torch-dtype": "not needed: weights keep their type; 'pyggml convert --outtype TYPE' changes it",
    "--gpu --use-gpu --cuda --metal": "not needed: what this build can use is used, and --device gpu insists on a GPU",
    "--cpu": "--device cpu",
    "-q --quantize --quantization --load-in-4bit --load-in-8bit": "'pyggml quantize SOURCE OUT TYPE' makes a file with "
    "smaller weights, or name one of the hub: -m hf:org/repo:q4_k_m",
    "-cnv --conversation -no-cnv --no-cnv --no-conversation": _NO_TEMPLATE,
    "--chat-template --chat-template-file --jinja --no-jinja --ignore-chat-template": _NO_TEMPLATE,
    "-i --interactive --interactive-first -if -st --single-turn -cml --chatml": _TO_CHAT,
    "--system --system-prompt -sys -sysf --system-prompt-file": _SYSTEM,
    "--think --thinking --hidethinking --reasoning --reasoning-budget --reasoning-format": "'pyggml chat' has "
    "--thinking and --no-thinking",
    "-v --verbose --verbosity --log-disable --log-file --verbose-prompt --perf --no-perf": _QUIET,
    "-u --usage --show-timings": "--stats shows tokens and speed",
    "-co --color --colors --no-color --simple-io --nowordwrap": "not needed: a terminal gets colours, unless NO_COLOR "
    "is set, and anything else plain text",
    "--display-prompt --no-display-prompt --echo --no-echo": "not needed: only the new text is printed",
    "--stream --no-stream --streaming": _STREAMS,
    "--quiet --silent": "not needed: standard output has only the text; '2> /dev/null' drops the rest",
    "--output --out --output-file": "not needed: '> FILE' behind the command keeps the output in a file",
    "--warmup --no-warmup --check-tensors --no-host --repack --no-repack": "not needed",
    "--keep --context-shift --no-context-shift": "a text that no longer fits ends: --n-ctx makes room",
    "--keepalive": "not needed: a model is in memory while its command runs",
    "--prompt-cache --prompt-cache-file --prompt-cache-all": "there is no such file: 'pyggml chat' keeps its work as "
    "long as it runs",
    "-r": "--stop TEXT ends the generation at a text",
    "--max-length": "--max-tokens N counts only what is generated, without the prompt",
    "--min-length --min-tokens --min-new-tokens": "there is no minimum: --ignore-eos goes on to --max-tokens",
    "--num-beams --best-of --n-best --num-return-sequences": "there is one answer: sample again with another --seed",
    "--do-sample": "not needed: --temperature above 0 samples",
    "--greedy": "not needed: --temperature 0 takes the likeliest token each time",
    "--sampling-seq --sampler-seq": "--samplers top_k,top_p,temperature says which samplers run, in that order",
    "--logprobs --n-probs": "llm.generate(prompt, logprobs=5) in Python returns them",
    "--format": "--json prints a JSON object; --json-schema makes the model write JSON",
    "-o --option": "options have names of their own, such as --temperature 0.8; '> FILE' keeps the output in a file",
    "--host --port --api-key": "'pyggml serve MODEL' serves models over HTTP",
}

_DESTINATION = "OUT is an argument: "
_CORS = "not needed: --cors-origins says whose pages may ask"
_CPU = "--device cpu computes without a GPU; otherwise all layers are on it"

# The same for single commands, before those above.
_OPTIONS_OF = {
    "program": {"-v": "--version shows the version"},
    "chat": {
        "-st --single-turn": "not needed: 'pyggml chat QUESTION' answers once",
        "-cnv --conversation -i --interactive --interactive-first -if -cml --chatml --jinja": "not needed: "
        "'pyggml chat' talks with the model, through its chat template",
        "-no-cnv --no-cnv --no-conversation --no-jinja --ignore-chat-template": "'pyggml generate' continues a text "
        "without a chat template",
    },
    "convert": {
        "-o --outfile --output --output-dir": f"{_DESTINATION}pyggml convert DIRECTORY OUT",
        "-f": "--force replaces OUT",
        "-m --model --model-path --hf-path": "the directory is an argument: pyggml convert DIRECTORY OUT",
        "-q --quantize --q-bits --dtype": "--outtype TYPE sets the type of the weights, such as q4_k_m",
        "--vocab-only --split-max-size --split-max-tensors --bigendian --use-temp-file": "there is no such option",
    },
    "quantize": {
        "-f": "--force replaces OUT",
        "-o --outfile --output": f"{_DESTINATION}pyggml quantize SOURCE OUT TYPE",
        "-m --model": "the file is an argument: pyggml quantize SOURCE OUT TYPE",
        "--allow-requantize": "--requantize accepts a source that is already quantised",
        "--leave-output-tensor": "--keep ^output.weight leaves it as it is",
        "--output-tensor-type": "--tensor-type ^output.weight=TYPE sets it",
        "--token-embedding-type": "--tensor-type token_embd=TYPE sets it",
        "--pure": "--tensor-type .=q4_0 gives all weights one type",
        "--keep-split": "the result is one file",
    },
    "imatrix": {
        "-f --file": "the text is an argument: pyggml imatrix TEXT OUT",
        "-o --output --output-file": f"{_DESTINATION}pyggml imatrix TEXT OUT",
        "--chunks": "--n-chunks N is the number of chunks to read",
        "-ngl --n-gpu-layers --gpu-layers": _CPU,
    },
    "perplexity": {
        "-f --file": "the text is an argument: pyggml perplexity TEXT",
        "--chunks": "--n-chunks N is the number of chunks to read",
        "-ngl --n-gpu-layers --gpu-layers": _CPU,
    },
    "serve": {
        "--api-key": "on the command line everybody on the machine would see it: put it in a file and name that with "
        "--api-key-file FILE, or set PYGGML_API_KEY",
        "-p": "--port N is the port; requests bring their prompts",
        "--prompt -f --file": "requests bring their prompts",
        "-sys --system --system-prompt -spf --system-prompt-file -sysf": "requests bring their system messages",
        "--threads-http": "not needed: one event loop serves all connections",
        "--workers --api-server-count --data-parallel-size -dp": "one process serves; a proxy may stand before several",
        "--metrics --no-metrics": "not needed: /metrics is always there",
        "--props": "not needed: /props is always there, to be read",
        "--slots --no-slots --slot-save-path -sps --slot-prompt-similarity": "there are no slots: -np N is the number "
        "of requests computed together, and /metrics shows how busy the server is",
        "--embedding --embeddings --rerank --reranking --task --runner": "not needed: every model embeds, and "
        "rerankers rerank",
        "--pooling": "not needed: it is read from the model",
        "-cb --cont-batching -nocb --no-cont-batching": "not needed: requests that are there are computed together",
        "--jinja --no-jinja --skip-chat-parsing --chat-template-content-format": "not needed: the model's template is "
        "used, or that of --chat-template, and answers are parsed by it",
        "--chat-template-file": "--chat-template takes a file, too",
        "--chat-template-kwargs --default-chat-template-kwargs": "requests bring their chat_template_kwargs",
        "-rea --reasoning --reasoning-format --reasoning-budget --reasoning-effort --think": "requests say how much "
        "models think",
        "--enable-auto-tool-choice --tool-call-parser --reasoning-parser --enable-reasoning": "not needed: the model's "
        "template says how it calls tools and reasons",
        "--ssl-key-file --ssl-cert-file --ssl-keyfile --ssl-certfile --ssl-ca-certs --ssl --tls --https": "TLS is for "
        "a proxy before the server: docs/reference/server.md shows one",
        "--no-webui --no-ui": "--no-page leaves the page out",
        "--path --media-path": "no files are served; --no-page leaves the page out",
        "--ui-config --webui-config --tools --agent -ag": "the page has its settings in the browser, and no tools",
        "--cors": "--cors-origins ORIGIN says whose pages may ask",
        "--cors-methods --cors-headers --cors-credentials": _CORS,
        "--allowed-methods --allowed-headers --allow-credentials": _CORS,
        "-v --verbose --log-verbose": "--log-level debug",
        "-lv --verbosity --log-verbosity": "--log-level LEVEL says how much is logged",
        "--log-disable --disable-log-requests --disable-uvicorn-access-log --no-access-log": "--log-level warning "
        "leaves requests out",
        "--log-requests --access-log": "not needed: the log has a line for each request",
        "--log-jsonl": "--log-format json",
        "--log-prefix --log-timestamps": "not needed: each line of the log has its time and its level",
        "--disable-log-stats": "not needed: figures are at /metrics, not in the log",
        "--log-file": "the log goes to standard error: '2> FILE' keeps it",
        "--enable-log-requests --enable-log-outputs --log-prompts-dir": "--log-prompts logs prompts and answers too",
        "--models-dir --models-preset": "several models are arguments, pyggml serve MODEL MODEL, or tables of a file "
        "for --config FILE",
        "--models-autoload --no-models-autoload --sleep-idle-seconds --keep-alive --keepalive": "models are loaded "
        "when they are asked for, and stay until --max-memory SIZE or --max-loaded-models N makes them leave",
        "--cache-prompt": "not needed: beginnings that prompts share are kept",
        "--no-cache-prompt --no-enable-prefix-caching": "--no-prefix-cache",
        "--cache-reuse --cache-ram -cram --ctx-checkpoints -ctxcp --swa-checkpoints --kv-unified -kvu": "not needed: "
        "all requests have one cache, which keeps what prompts begin with",
        "--max-concurrent-requests --max-concurrency --concurrency": "-np N are computed together, and --max-queue N "
        "wait",
        "--queue-size": "--max-queue N is how many requests may wait",
        "--n-probs --logprobs": "requests ask for logprobs",
        "--no-stream --stream": "requests say whether they are answered in a stream",
        "--uds --reuse-port --listen --bind --address -H": "--host ADDRESS and --port N say where it listens",
        "--reload": "there is no such option: SIGTERM ends a server when its requests have ended",
        "-d --daemon --detach --background": (
            "it stays in the foreground: docs/reference/server.md shows a service of systemd"
        ),
        "-to": "--request-timeout X is how long a request may take",
        "-fit --fit -fitc --fit-ctx -fitt --fit-target": "--n-ctx auto and --n-gpu-layers auto take what fits",
        "--generation-config --override-generation-config": "not needed: what a model's makers recommend is used, and "
        "options such as --temperature go before it",
        "--guided-decoding-backend --structured-outputs-config": "not needed: requests bring their schemas",
        "--enable-lora --lora-modules": _NO_ADAPTERS,
        "--speculative-config": _NO_DRAFTS,
        "--limit-mm-per-prompt": _NO_PICTURES,
        "--pipeline-parallel-size -pp": "--device cuda:0,cuda:1 divides the layers between both GPUs",
        "--enable-expert-parallel": "there is no such setting: --n-cpu-moe and --override-tensor place experts",
        "--revision": "name it after the repository: hf:org/repo@REVISION",
        "--download-dir": "set HF_HUB_CACHE, or HF_HOME",
        "--enforce-eager --async-scheduling --compilation-config --load-format --enable-chunked-prefill "
        "--scheduling-policy --swap-space --cpu-offload-gb --swa-full": "there is no such setting",
        "--interrupt-requests": "not needed: requests do not interrupt each other",
    },
    "inspect": {"-e": "--estimate shows how much memory the model takes"},
    "bench": {
        "-o --output": "--json and --csv print for programs",
        "-pg": "-p and -n measure prompts and tokens, each by itself",
        "-ctk -ctv --cache-type-k --cache-type-v": "keys and values have one type here: --cache-type f16,q8_0",
    },
}


def command_answer(name: str, rest: Sequence[str]) -> str | None:
    """What to type for a command of another tool; None: there is nothing to say.

    Args:
        name: the command.
        rest: what follows it on the command line.
    """
    answer = _by_word(_COMMANDS).get(name)
    if answer is None:
        return None
    return re.sub(r"\{(.+?)\}", lambda stands: _filled(stands[1], rest), answer)


def option_answers(command: str) -> dict[str, str]:
    """Options that a command has under another name, or does not need -> what to type."""
    return _by_word(_OPTIONS) | _by_word(_OPTIONS_OF.get(command, {}))


def _by_word(table: dict[str, str]) -> dict[str, str]:
    return {word: answer for words, answer in table.items() for word in words.split()}


def _filled(place: str, rest: Sequence[str]) -> str:
    if place.startswith("hf:") and rest:
        from pyggml.hub import guess_reference, is_reference

        is_file = len(rest) > 1 and rest[1].endswith(".gguf")  # hf download org/repo model.gguf
        source = ":".join(rest[: 1 + is_file])
        return source if is_reference(source) else guess_reference(source) or place
    return shlex.join(rest) or place
