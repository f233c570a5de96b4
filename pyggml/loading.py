"""The function that loads a model: ``pyggml.load``."""

from __future__ import annotations

from pyggml._core.fields import takes
from pyggml.llm import LLM
from pyggml.options import LoadOptions


@takes(LoadOptions)
def load(options: LoadOptions) -> LLM:  # noqa: D417
    """Loads a model, ready to generate. ``LLM(...)`` does the same.

    On the CPU, each request gets the bits that it gets alone, whatever shares the batch, however its prompt is cut or
    reused and whatever the number of threads, unless ``llm.stats().not_batch_invariant`` names operations that round
    together what is computed together. ``deterministic=True`` refuses those.

    Args:
        source: a model's file, directory or reference, or an open Model. A file is a ``.gguf`` file (the first of a
            split set); a Hugging Face directory is imported on first use; a reference, ``hf:org/repo`` or
            ``hf:org/repo:file.gguf``, is downloaded on first use. None: the small demonstration model that ships with
            pyggml.
        tokenizer: a tokenizer.json, a tokenizer.model, or a directory with one; or a tokenizer object. None: the
            one in the model's file.
        device: "auto" (GPUs this build can use, else the CPU), "cpu", "gpu", "cuda", "cuda:1", "cuda:0,cuda:1" ...
            An index counts from 0; without one it is the first. "gpu" is a GPU of any kind; an error if there is none.
            A list of names works too; the first device takes the first layers.
        n_gpu_layers: number of layers on the GPU; "auto": as many as fit. None: all of them. "auto" leaves a tenth of
            the GPU's memory free, and lets a mixture of experts leave experts in main memory first, as ``n_cpu_moe``
            does; with ``n_ctx="auto"`` too, layers are placed first, assuming a context of the default size, which then
            grows.
        split_mode: how several devices share the model: "layer" by layer, "row" or "tensor" within them, or "none".
            Every device can do "layer" and "none", which uses one of them.
        tensor_split: how much of the model each device takes, such as 3,1. None: in proportion to their free memory.
            A list of numbers works too.
        main_gpu: with ``split_mode`` "none", which of the devices takes the model. None: the first.
        n_cpu_moe: number of layers whose experts stay in main memory, or "all". None: as few as ``n_gpu_layers`` needs.
            Counted from the first layer; everything else of those layers is where ``n_gpu_layers`` puts it.
        override_tensor: where tensors go whose names match, such as "ffn_.*_exps=cpu". None: as the other options say.
            Several pairs have commas between them; a dict of patterns and devices works too. The first pattern found in
            a name counts.
        rpc: hosts that run "pyggml rpc-serve", such as "gpu-box:50052", whose devices take layers. None: no others.
            Several have commas between them; a list works too. ``device`` "auto" takes all of their devices beside this
            machine's GPUs, and "rpc:0" names the first. A host that is lost makes every later request a HostLostError.
        rpc_key: a file with the key of those hosts. None: PYGGML_RPC_KEY, or the key that this user's server made.
        n_ctx: context size in tokens, prompts and answers together; "auto": as large as fits. All running requests
            share it, and a request that runs alone may use all of it. None: the model's training length, at most 8,192.
            "auto": the training length, or less if needed to leave a tenth of the available memory free.
        n_parallel: number of requests computed together; the others wait their turn. 1 to 256.
        n_batch: maximum number of tokens in a forward pass; at least n_parallel.
        n_ubatch: maximum number of tokens computed at once within a forward pass; n_parallel, if that is more.
        cache_type: element type of the key-value cache: "f32", "f16", "bf16", "q8_0", "q4_0" ...
        n_threads: number of compute threads. None: the engine measures its speed and adapts as other programs claim or
            release cores. A number you give is kept.
        prefix_cache: keep the work of finished requests for prompts with the same beginning, while there is room.
        deterministic: refuse to load unless every request gets the bits that it gets alone. What is computed, and its
            speed, is the same without it; ``docs/explanation/kernels.md`` says what is covered.
        backend_sampling: choose the tokens of greedy requests on the GPU (experimental). The tokens are the same, but
            only a token id leaves the device instead of a row of logits as long as the vocabulary. It stays off where
            the device cannot do it, and while a request runs that needs more of the logits;
            ``llm.stats().n_sampled_on_device`` counts. Off by default: it brings a tenth with many requests, nothing
            with one.
        max_queue: maximum number of waiting requests. None: no limit.
        queue_full: "raise" refuses a request when the queue is full; "wait" waits for room. A refused request raises
            QueueFullError; a waiting one gives up after its ``timeout_s``.
        progress: called with 0..1 while loading: while files are downloaded, again while a directory is imported, and
            again while the weights load. Returning False stops it.
        chat_template: chat template to use: a name such as chatml, a file, or Jinja text; see
            :meth:`LLM.chat_templates`. A call may name another. None: the model's own.
        isolate: run model and engine in a process of their own, whose end this one survives: by a failed assertion, a
            fault or the system. Requests in flight get an EngineError, and the next call starts another.
            ``llm.stats().n_restarts`` counts. ``docs/explanation/process-isolation.md`` says what it costs.

    Raises:
        ModelNotFoundError, ModelLoadError, UnsupportedArchitectureError: the file or directory cannot be loaded.
        DownloadError: the download failed.
        MissingPackageError: downloading needs ``huggingface_hub``, which is not installed.
        DiskFullError: there is no room for the download or the import.
        DeviceError: there is no such device.
        OutOfMemoryError: the model does not fit; names required and available bytes, and what would fit. Raised before
            the weights are read.
        InvalidParameterError: an argument is out of range, or ``deterministic`` cannot be kept; names the operations.
        TokenizerError: the vocabulary has no stop token, or ``tokenizer`` does not belong to this model.
        TokenizerNotFoundError: there is no tokenizer at that path.
    """
    return LLM(**vars(options))
