"""The function that loads a model: ``pyggml.load``."""

from __future__ import annotations

from pyggml._core.fields import takes
from pyggml.llm import LLM
from pyggml.options import LoadOptions


@takes(LoadOptions)
def load(options: LoadOptions) -> LLM:  # noqa: D417
    """Load a model, ready to generate. ``LLM(...)`` does the same.

    On the CPU, each request gets the same bits in any batch as alone, with any number of threads, however its prompt is
    split or cached, unless ``llm.stats().not_batch_invariant`` names operations whose rounding depends on the batch.
    ``deterministic=True`` refuses such models.

    Args:
        source: a model's file, directory or reference, or an open Model. A file is a ``.gguf`` file (the first of a
            split set); a Hugging Face directory is imported on first use; a reference, ``hf:org/repo`` or
            ``hf:org/repo:file.gguf``, is downloaded on first use. None: the small demonstration model that ships with
            pyggml.
        tokenizer: a tokenizer.json, a tokenizer.model, or a directory with one; or a tokenizer object. None: the
            one in the model's file.
        device: ... An index counts from 0; without one it is the first. "gpu" is a GPU of any kind; an error if there
            is none. A list of names works too; the first device takes the first layers.
        n_gpu_layers: ... "auto" leaves a tenth of the GPU's memory free, and may keep the experts of a
            mixture-of-experts model in main memory, as ``n_cpu_moe`` does; with ``n_ctx="auto"`` too, layers are placed
            first, assuming a context of the default size, which then grows.
        split_mode: ... Every device supports "layer" and "none", which uses one of them.
        tensor_split: ... A list of numbers works too.
        n_cpu_moe: ... Counted from the first layer; all other weights of those layers are placed by ``n_gpu_layers``.
        override_tensor: ... Separate several pairs with commas; a dict of patterns and devices works too. The first
            pattern found in a name counts.
        rpc: ... Separate several with commas; a list works too. ``device`` "auto" uses all of their devices together
            with this machine's GPUs, and "rpc:0" names the first. After a host is lost, every request raises
            HostLostError.
        n_ctx: ... All running requests share it, and a request that runs alone may use all of it. A UserWarning says
            if it is beyond the model's training length, as scaled by the options below. None: that length, at most
            8,192. "auto": the training length, or less if needed to leave a tenth of the
            available memory free.
        n_parallel: ... 1 to 256.
        n_batch: ... At least n_parallel.
        cache_type: element type of the KV cache: "f32", "f16", "bf16", "q8_0", "q4_0" ...
        n_threads: ... It uses more or fewer as other programs release or use cores. A number you give is kept.
        prefix_cache: ... Cached cells are evicted when running requests need them.
        prefix_cache_bytes: ... Evicted cells are copied back when a prompt can start from them, so that more
            conversations than the KV cache holds can alternate. Models with sliding windows or recurrent layers need
            checkpoints to continue a prompt that changed near its end, as a chat's does; others keep none. None: 1 GiB,
            or an eighth of the available memory if that is less.
        prefix_cache_dir: ... Evicted cells, and those that are cached when the model is closed, are written there and
            read for prompts that begin with them, after a restart, too. Other processes with the same model and options
            share it. It is created, for its owner only; the files hold tokens of prompts.
        deterministic: ... Computation and speed are the same without it; ``docs/explanation/kernels.md`` lists what is
            covered.
        backend_sampling: ... Some candidates leave the device instead of a row of logits as long as the vocabulary.
            Seeds keep their meaning, and a request that needs more of the logits gets them. It stays off with Vulkan,
            if the device does not support it, and while many requests need all logits;
            ``llm.stats().n_sampled_on_device`` counts.
        queue_full: ... A refused request raises QueueFullError; a waiting one raises RequestTimeout after its
            ``timeout_s``.
        progress: ... It is called first while files are downloaded, again while a directory is imported, and again
            while the weights load. Returning False stops it.
        outtype: ... Weights are quantised while they are imported, in one pass, so that the disk need not hold them in
            their own precision. Not for a GGUF file, which :func:`pyggml.quantize` converts.
        lora: ... Separate several with commas; a list, or a dict of files and scales, works too. Each is loaded as by
            :meth:`LLM.load_adapter`, and applied to every request that names no adapter. With a scale of 0, only
            requests that name it apply it, with a scale of 1.
        chat_template: ... See :meth:`LLM.chat_templates`. A call may name another.
        isolate: ... Requests in flight raise EngineError, and the next call starts another process.
            ``llm.stats().n_restarts`` counts. ``docs/explanation/process-isolation.md`` lists the costs.

    Raises:
        ModelNotFoundError, ModelLoadError, UnsupportedArchitectureError: the file or directory cannot be loaded.
        DownloadError: the download failed.
        MissingPackageError: downloading needs ``huggingface_hub``, which is not installed.
        DiskFullError: the disk has too little space for the download or the import; names the largest ``outtype`` that
            would fit.
        DeviceError: there is no such device.
        OutOfMemoryError: the model does not fit; names required and available bytes, and settings that fit. Raised
            before the weights are read.
        InvalidParameterError: an argument is out of range, or ``deterministic`` cannot be kept; names the operations.
        TokenizerError: the vocabulary has no stop token, or ``tokenizer`` does not belong to this model.
        TokenizerNotFoundError: there is no tokenizer at that path.
    """
    return LLM(**vars(options))
