"""lm-evaluation-harness: a model for ``--model pyggml``. Needs ``lm-eval``.

.. code-block:: console

    $ python -m pyggml.integrations.lm_eval run --model pyggml --model_args pretrained=model.gguf --tasks hellaswag

lm-eval has no entry points for models, so this module registers its own and then is lm-eval's command.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyggml import LLM, InvalidParameterError, SamplingParams, Scorer
from pyggml.integrations._frameworks import needs
from pyggml.integrations._models import ModelLike, model_name, open_llm
from pyggml.options import BATCH_N_PARALLEL

with needs("lm-eval"):
    from lm_eval.api.instance import Instance
    from lm_eval.api.model import TemplateLM
    from lm_eval.api.registry import register_model
    from lm_eval.models.utils import normalize_gen_kwargs, postprocess_generated_text
    from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
    from tqdm import tqdm

__all__ = ["PyggmlLM"]

#: Options of the scoring context among those of :func:`pyggml.load`.
_CACHES = {"cache_type", "type_k", "type_v"}
_CONTEXT_OPTIONS = (*_CACHES, "n_threads")
#: Attention in F32 throughout, as in PyTorch, unless the caller chooses the types of the KV cache.
_EXACT = {"cache_type": "f32", "flash_attn": "off"}
#: The device that lm-eval's command passes if the user names none, whatever the machine has, is the first of these.
_DEFAULT_DEVICES = ("cuda:0", None)
#: Arguments of generation that lm-eval calls otherwise.
_GENERATION = {"max_gen_toks": "max_tokens", "repetition_penalty": "repeat_penalty", "until": "stop"}


@register_model("pyggml")
class PyggmlLM(TemplateLM):
    """A model of lm-eval: log likelihoods with shared prefixes, rolling ones, and generation in batches.

    Args:
        pretrained: an open LLM; or a file, a directory or a reference, as for :func:`pyggml.load`; None or
            "demo": the demonstration model.
        max_length: longest sequence in tokens; longer ones lose their beginning. None: the context of the model's
            training, or that of ``n_ctx`` if it is smaller.
        max_gen_toks: tokens to generate, unless a task says otherwise.
        add_bos_token: start every text with the BOS token; None: as the vocabulary says.
        think_end_token: text that ends a model's reasoning, which is then left out.
        batch_size: no effect, as for ``max_batch_size``: requests are batched as far as they fit.
        max_batch_size: no effect.
        device: as for :func:`pyggml.load`; "cuda:0", which lm-eval's command passes by default, means "auto".
        scoring: options of the :class:`pyggml.Context` that computes likelihoods. None: attention in F32; with
            ``cache_type``, ``type_k`` or ``type_v`` among the ``load_options``, as the model attends when it generates.
        **load_options: parameters of :func:`pyggml.load`, with 16 as default of ``n_parallel``; adapters of ``lora``
            apply to likelihoods too.

    Raises:
        InferError: as :func:`pyggml.load`.
    """

    backend = "causal"

    def __init__(
        self,
        pretrained: ModelLike = None,
        *,
        max_length: int | None = None,
        max_gen_toks: int = 256,
        add_bos_token: bool | None = None,
        think_end_token: str | None = None,
        batch_size: Any = None,  # noqa: ARG002
        max_batch_size: Any = None,  # noqa: ARG002
        device: str | None = None,
        scoring: Mapping[str, Any] | None = None,
        **load_options: Any,
    ) -> None:
        super().__init__()
        pretrained = None if pretrained == "demo" else pretrained
        options = load_options if device in _DEFAULT_DEVICES else {"device": device, **load_options}
        if not isinstance(pretrained, LLM):
            options = {"n_parallel": BATCH_N_PARALLEL, **options}
        self.llm = open_llm(pretrained, options)
        self.max_gen_toks, self.add_bos_token, self.think_end_token = max_gen_toks, add_bos_token, think_end_token
        n_trained = self.llm.model.n_ctx_train or self.llm.n_ctx
        self.max_length = min(n_trained, self.llm.n_ctx) if max_length is None else max_length
        if self.max_length > self.llm.n_ctx:
            raise InvalidParameterError(
                f"max_length={max_length} is more than the context of {self.llm.n_ctx} tokens: raise n_ctx too"
            )
        given = {name: load_options[name] for name in _CONTEXT_OPTIONS if name in load_options}
        caches = {} if _CACHES & given.keys() else _EXACT
        self._scorer_options = {**caches, **given, **(scoring or {})}
        self._scorer: Scorer | None = None

    # --- tokens ----------------------------------------------------------------------------------------------

    @property
    def eot_token_id(self) -> int:
        """The token that ends a text, or a turn if there is none."""
        vocab = self.llm.model.vocab
        return int(vocab.eos if vocab.eos is not None else next(iter(self.llm.stop_tokens)))

    @property
    def prefix_token_id(self) -> int:
        """The token that precedes a text without a context: BOS, or the one that ends texts."""
        bos = self.llm.model.vocab.bos
        return self.eot_token_id if bos is None else int(bos)

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_kwargs: Any) -> list[int]:
        """Convert text to token ids, with one BOS token at most."""
        add_special = add_special_tokens
        if add_special is None:
            bos = self.llm.detokenize([self.prefix_token_id], remove_special=False)
            add_special = False if bos and string.startswith(bos) else self.add_bos_token is not False
        token_ids = self.llm.tokenize(string, add_special=add_special)
        if self.add_bos_token and add_special and token_ids[:1] != [self.prefix_token_id]:
            return [self.prefix_token_id, *token_ids]
        return token_ids

    # --- likelihoods -------------------------------------------------------------------------------------------

    def _loglikelihood_tokens(
        self,
        requests: Sequence[tuple[tuple[str, str] | None, list[int], list[int]]],
        disable_tqdm: bool = False,
        **_kwargs: Any,
    ) -> list[tuple[float, bool]]:
        items = [self._item(context, continuation) for _, context, continuation in requests]
        results: list[tuple[float, bool]] = [(0.0, False)] * len(items)
        bar = tqdm(total=len(items), disable=disable_tqdm, desc="Running loglikelihood requests")
        adapters = {self.llm.adapters[name]: scale for name, scale in self.llm.default_adapters.items()}
        for index, score in self._scores().scores(items, adapters):
            results[index] = (score.logprob, score.is_greedy)
            if requests[index][0] is not None:
                self.cache_hook.add_partial("loglikelihood", requests[index][0], results[index])
            bar.update()
        bar.close()
        return results

    def _item(self, context: list[int], continuation: list[int]) -> tuple[list[int], int]:
        """A sequence that fits, without the beginning of a context that is too long."""
        if len(continuation) > self.max_length:
            raise InvalidParameterError(
                f"a continuation has {len(continuation)} tokens, but max_length is {self.max_length}: raise it"
            )
        return (context + continuation)[-(self.max_length + 1) :], len(continuation)

    def _scores(self) -> Scorer:
        if self._scorer is None:
            self._scorer = Scorer(self.llm.model, self.llm.n_ctx, **self._scorer_options)
        return self._scorer

    def loglikelihood_rolling(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[float]:
        """Return the log likelihood of each text, in windows of ``max_length`` tokens."""
        windows = [
            (number, make_disjoint_window(window))
            for number, request in enumerate(requests)
            for window in get_rolling_token_windows(
                token_list=self.tok_encode(request.args[0]),
                prefix_token=self.prefix_token_id,
                max_seq_len=self.max_length,
                context_len=1,
            )
        ]
        scores = self._loglikelihood_tokens([(None, *pair) for _, pair in windows], disable_tqdm=disable_tqdm)
        sums = [0.0] * len(requests)
        for (number, _), (logprob, _) in zip(windows, scores, strict=True):
            sums[number] += logprob
        for request, total in zip(requests, sums, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, total)
        return sums

    # --- generation --------------------------------------------------------------------------------------------

    def generate_until(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[str]:
        """Return the text that follows each context, up to a stop string or a stop token."""
        params = [self._params(request.args[1]) for request in requests]
        prompts = [self._prompt(request.args[0], one.max_tokens) for request, one in zip(requests, params, strict=True)]
        bar = tqdm(total=len(requests), disable=disable_tqdm, desc="Running generate_until requests")

        def show(_n_done: int, _n_all: int | None) -> None:
            bar.update()

        done = self.llm.generate_batch(prompts, params, progress=show)
        bar.close()
        texts = []
        for request, completion in zip(requests, done, strict=True):
            stops = request.args[1].get("until") if self.think_end_token else None
            text = postprocess_generated_text(completion.text, stops, self.think_end_token)
            self.cache_hook.add_partial("generate_until", request.args, text)
            texts.append(text)
        return texts

    def _prompt(self, context: str, max_tokens: int) -> list[int]:
        """The tokens of a context, without its beginning if that leaves too few for the answer."""
        n_max = self.max_length - max_tokens
        if n_max < 1:
            raise InvalidParameterError(
                f"max_gen_toks={max_tokens} leaves no tokens for the context of {self.max_length}: lower it"
            )
        return self.tok_encode(context)[-n_max:]

    def _params(self, given: Mapping[str, Any]) -> SamplingParams:
        """The sampling parameters of a request."""
        arguments: dict[str, Any] = dict(normalize_gen_kwargs(dict(given), self.max_gen_toks))
        if not arguments.pop("do_sample"):
            arguments["temperature"] = 0.0
        arguments["until"] = [text for text in arguments["until"] if text]
        if self.think_end_token:  # stop strings apply to the answer, not to the reasoning
            arguments["until"] = []
        return SamplingParams(**{_GENERATION.get(name, name): value for name, value in arguments.items()})

    # --- chat --------------------------------------------------------------------------------------------------

    @property
    def tokenizer_name(self) -> str:
        """The model's name, by which lm-eval caches requests."""
        return model_name(self.llm)

    def chat_template(self, chat_template: bool | str = False) -> str:
        """Return the source of the chat template, for the records."""
        if not chat_template:
            return ""
        return self.llm.model.chat_template(chat_template if isinstance(chat_template, str) else None) or ""

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """Render a conversation; without a generation prompt, its last message is continued."""
        return (
            self.llm.chat_templates()
            .render(
                chat_history,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=not add_generation_prompt,
            )
            .text
        )

    def get_model_info(self) -> dict[str, Any]:
        """Return facts of the model, for the records."""
        model = self.llm.model
        return {"model_num_parameters": model.n_params, "model_dtype": model.desc, "model_source": str(self.llm.source)}


def main() -> None:
    """Run lm-eval's command, which then knows ``--model pyggml``."""
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()


if __name__ == "__main__":
    main()
