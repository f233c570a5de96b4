"""Sampling parameters, each declared once with its type, default, range and meaning."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass
from typing import Annotated, Any, ClassVar

from pyggml._core.checks import INT32_MAX, UINT32_MAX, invalid, require_content
from pyggml._core.fields import Field, check, fields_of, option_class
from pyggml._core.hints import hints
from pyggml.options import sampling_values as values
from pyggml.options.adapter_choice import checked_choice
from pyggml.options.grammar import Grammar, checked_schema_options
from pyggml.options.sampling_values import DEFAULT_SAMPLERS, SPECULATIVE_MODES

#: The samplers that work together with Mirostat.
BESIDE_MIROSTAT = ("penalties", "dry", "temperature")

#: The distributions that ``logprobs`` can report, by vLLM's names.
LOGPROBS_MODES = ("raw_logprobs", "processed_logprobs")
#: What happens when the context is full.
OVERFLOWS = ("stop", "shift")
#: The parameters that set the format of the output; at most one may be given.
FORMATS = ("grammar", "json_schema", "choices", "regex")

_COUNT = Field(0, INT32_MAX)
_NO_LIMIT = "max_tokens=-1 generates up to the end of the context"
_LOGPROBS = Field(0, 1000, hidden=True)
_NOT_NEGATIVE = Field(0)
_FRACTION = Field(0, 1)


@option_class
@dataclass(frozen=True)
class SamplingParams:
    """Sampling parameters and stop conditions. The defaults are greedy.

    The constructor raises InvalidParameterError naming any bad field.

    Args:
        response_format: OpenAI's way to set ``json_schema``: ``{"type": "json_object"}`` for any object, ``{"type":
            "json_schema", "json_schema": {"schema": ...}}`` for a schema, ``{"type": "text"}`` for any text; or a
            Python type, for its schema.

    Attributes:
        max_tokens: maximum number of tokens to generate. -1: up to the end of the context.
        temperature: 0 always picks the likeliest token; higher values vary more. Logits are divided by it.
        top_k: sample from the k likeliest tokens; 0: off.
        top_p: sample from the likeliest tokens that together reach this probability; 1: off. Nucleus sampling,
            arXiv:1904.09751.
        min_p: drop tokens less likely than this fraction of the likeliest token's probability; 0: off. See llama.cpp
            pull request 3841.
        typical_p: sample from the most typical tokens that together reach this probability; 1: off. Locally typical
            sampling, arXiv:2202.00666.
        repeat_penalty: divide the logits of recent tokens by this (negative ones are multiplied); 1: off.
        frequency_penalty: subtract this from a token's logit for each recent occurrence; 0: off.
        presence_penalty: subtract this once from the logit of every recent token; 0: off.
        penalty_last_n: how many tokens, including the prompt's, count as recent for the three penalties; 0 turns them
            off.
        dynatemp_range: vary the temperature by up to this much in either direction; 0: off. It rises when the model
            is uncertain and falls when it is confident (llama.cpp pull request 4972).
        dynatemp_exponent: exponent of the curve by which ``dynatemp_range`` turns uncertainty into temperature.
        top_n_sigma: keep tokens whose logits are within this many standard deviations of the highest; 0: off. See
            arXiv:2411.07641.
        xtc_probability: how often to drop the likeliest tokens; 0: off. Of those above ``xtc_threshold``, only the
            least likely is kept (oobabooga/text-generation-webui pull request 6335).
        xtc_threshold: the probability above which ``xtc_probability`` may drop tokens. Above 0.5 it has no effect: two
            tokens cannot both be that likely.
        dry_multiplier: strength of the DRY penalty on tokens that would repeat an earlier sequence; 0: off. See
            oobabooga/text-generation-webui pull request 5677.
        dry_base: factor by which the DRY penalty grows with each repeated token.
        dry_allowed_length: length of the longest repetition that DRY does not penalise.
        dry_penalty_last_n: how many tokens DRY looks back; 0 turns it off.
        dry_sequence_breakers: strings at which DRY stops matching a repetition. At most 40 bytes each.
        mirostat: version of Mirostat, 1 or 2, which keeps the surprise at ``mirostat_tau``; 0: off. It replaces top_k,
            top_p and the other samplers that drop tokens (arXiv:2007.14966).
        mirostat_tau: surprise that Mirostat aims for, in bits.
        mirostat_eta: how fast Mirostat corrects the surprise.
        adaptive_target: prefer tokens near this probability. None: off. See llama.cpp pull request 17927.
        adaptive_decay: how slowly ``adaptive_target`` adapts.
        min_keep: minimum number of tokens that top_k, top_p, min_p, typical_p and xtc leave; 0: no minimum.
        samplers: names of the samplers, in the order they run. None: ``DEFAULT_SAMPLERS``. The list must include every
            sampler that another parameter turns on.
        seed: seed for random numbers. None: a new one each time.
        stop: strings that end the generation. No part of them appears in the text.
        stop_token_ids: ids of tokens that end the generation, in addition to the model's stop tokens.
        repetition_guard: end a generation that repeats a block of tokens endlessly, with the stop reason "repetition".
            The block must occur four times in a row, with at least 1,024 tokens together. None: on in chats and in the
            server, unless the caller sets ``ignore_eos``; off elsewhere.
        overflow: what happens when the context is full. "stop": the generation ends, with the finish reason "length",
            and chats that are longer are refused. "shift": a chat leaves its oldest turns out of the prompt, so that
            ``max_tokens`` fit behind it, or half of the context if that is less; other generations drop the older half
            of their tokens, the prompt's included, and compute the others again. They need a limit, so
            ``max_tokens=-1`` is refused. A prompt that is longer than the context is refused in either case.
        n_keep: number of the prompt's first tokens that ``overflow="shift"`` never drops, at most half of the context.
            -1: the whole prompt. Chats keep their system messages instead.
        min_tokens: number of tokens before the first stop token or stop string. A grammar that allows nothing but the
            end still ends the output.
        bad_words: texts to keep out of the output, as vLLM defines it: the last token of a text's own token sequence,
            with and without a space before it, is forbidden after the others. The same text in other tokens remains
            possible. A sequence of token ids stands for itself.
        allowed_token_ids: the only tokens that may be generated. None: all. Stop tokens must be listed to be generated,
            except with a grammar, which decides where the output ends.
        ignore_eos: continue to ``max_tokens``, even where the model would stop. Not with a grammar or JSON schema.
        logit_bias: token id -> number added to its logit. ``-inf`` forbids the token.
        grammar: grammar that the output must match: GBNF text with a rule ``root``, or a Grammar.
        json_schema: JSON schema that the output must match: a dict, its JSON text, or a Python type (a pydantic model,
            a dataclass, ``list[int]`` ...). Not with ``grammar``. See :func:`schema_of`.
        json_schema_options: options of :func:`pyggml.grammar_of` for ``json_schema``: ``{"any_order": True}`` for
            members in any order, ``{"additional_properties": "allow"}`` for members that the schema does not name.
        choices: the output is one of these texts.
        regex: the output matches this regular expression, in Python's syntax, from start to end. Digits, letters and
            white space of classes are those of ASCII.
        logits_processor: a function, or several in their order, that changes the logits before each token is sampled.
            ``f(token_ids, logits)`` gets the tokens of prompt and output, int32, (n,), and the logits, float32,
            (n_vocab,), which it changes in place; or it returns others, or the id of the token to generate. It runs on
            the engine's thread, which waits for it, so it must be fast and cannot use the same model. The arrays are
            those of the next call too: copy what you keep. See :class:`pyggml.BatchedLogitsProcessor`.
        reasoning_budget: maximum number of tokens that a model reasons before it answers. At the end of the budget its
            reasoning is closed and the answer begins. 0: no reasoning; ``thinking=False`` in addition, unless a chat
            sets ``thinking``. None: no limit but ``max_tokens``. Only for chats.
        reasoning_budget_message: text that ends reasoning at the end of ``reasoning_budget``, such as a sentence that
            leads to the answer; None: none.
        cache_salt: text that isolates the prefix cache: a request reuses only prefixes of requests with the same salt,
            so that response times reveal nothing about other callers' prompts. None: shared by all requests without.
        adapter: name of the adapter that the model computes with, or a dict of names and scales, whose low-rank parts
            are added up. {}: none. None: those that the model was loaded with (``lora``).
        timeout_s: seconds after which the generation stops and returns its tokens so far. None: no limit. Counted from
            submission, including any wait for a full queue (``queue_full="wait"``).
        logprobs: return the log probability of each generated token and of this many likeliest alternatives; 0: off.
        logprobs_mode: the distribution of ``logprobs``. "raw_logprobs": the model's own, the log-softmax of its logits
            before temperature, penalties, bias, samplers and grammar. "processed_logprobs": that from which the token
            was drawn, after all of these; alternatives are the tokens that are left.
        prompt_logprobs: the same for the tokens of the prompt. This computes the whole prompt, a few rows at a time,
            even if a prefix of it is cached.
        speculative: how the next tokens are guessed, so that one forward pass computes several. Guesses are kept only
            if they equal what is sampled: text and logprobs are the same bits as without. "forced": text that the
            grammar or schema forces. "lookup": how prompt and output went on after the same tokens. "draft": those of
            the draft model that was loaded with it. "auto": all of these, as many guesses as the engine measures to
            pay, and none where they could not be exact. "off": none. None: as the model was loaded.
        num_speculative_tokens: number of guesses in each step, whether they pay or not. None: as many as pay.
    """

    HINTS: ClassVar[Mapping[str, str]] = hints("sampling")
    LISTED_BY: ClassVar[str] = "help(pyggml.SamplingParams)"

    max_tokens: Annotated[int, Field(-1, INT32_MAX, letter="n", without=_NO_LIMIT)] = 256
    temperature: Annotated[float, _NOT_NEGATIVE] = 0.0
    top_k: Annotated[int, Field(0, INT32_MAX, sampler="top_k", without="0 turns it off")] = 0
    top_p: Annotated[float, Field(0, 1, sampler="top_p")] = 1.0
    min_p: Annotated[float, Field(0, 1, sampler="min_p")] = 0.0
    typical_p: Annotated[float, Field(0, 1, sampler="typical_p")] = 1.0
    repeat_penalty: Annotated[float, Field(0, above_low=True, sampler="penalties")] = 1.0
    frequency_penalty: Annotated[float, Field(sampler="penalties")] = 0.0
    presence_penalty: Annotated[float, Field(sampler="penalties")] = 0.0
    penalty_last_n: Annotated[int, Field(0, INT32_MAX, without="llm.n_ctx is the whole context")] = 64
    dynatemp_range: Annotated[float, Field(0, sampler="temperature")] = 0.0
    dynatemp_exponent: Annotated[float, _NOT_NEGATIVE] = 1.0
    top_n_sigma: Annotated[float, Field(0, sampler="top_n_sigma")] = 0.0
    xtc_probability: Annotated[float, Field(0, 1, sampler="xtc")] = 0.0
    xtc_threshold: Annotated[float, _FRACTION] = 0.1
    dry_multiplier: Annotated[float, Field(0, sampler="dry")] = 0.0
    dry_base: Annotated[float, Field(1)] = 1.75
    dry_allowed_length: Annotated[int, _COUNT] = 2
    dry_penalty_last_n: Annotated[int, _COUNT] = 64
    dry_sequence_breakers: Sequence[str] = ("\n", ":", '"', "*")
    mirostat: Annotated[int, Field(0, 2)] = 0
    mirostat_tau: Annotated[float, _NOT_NEGATIVE] = 5.0
    mirostat_eta: Annotated[float, _NOT_NEGATIVE] = 0.1
    adaptive_target: Annotated[float | None, _FRACTION] = None
    adaptive_decay: Annotated[float, Field(0, 0.99)] = 0.9
    min_keep: Annotated[int, _COUNT] = 0
    samplers: Sequence[str] | None = None
    seed: Annotated[
        int | None,
        Field(0, UINT32_MAX - 1, letter="s", without="None is a new one each time"),  # to the engine, UINT32_MAX is
    ] = None
    stop: str | Sequence[str] | None = ()
    stop_token_ids: Sequence[int] = ()
    repetition_guard: bool | None = None
    overflow: Annotated[str, Field(choices=OVERFLOWS)] = "stop"
    n_keep: Annotated[int, Field(-1, INT32_MAX)] = 4
    min_tokens: Annotated[int, _COUNT] = 0
    bad_words: Sequence[str | Sequence[int]] = ()
    allowed_token_ids: Sequence[int] | None = None
    ignore_eos: bool = False
    logit_bias: Annotated[Mapping[int, float] | None, Field(letter="l")] = None
    grammar: str | Grammar | None = None
    json_schema: Annotated[Mapping[str, Any] | str | type | object | None, Field(letter="j")] = None
    json_schema_options: Annotated[Mapping[str, Any] | None, Field(hidden=True)] = None
    choices: Sequence[str] | None = None
    regex: str | None = None
    logits_processor: Annotated[Callable[..., Any] | Sequence[Callable[..., Any]] | None, Field(hidden=True)] = None
    reasoning_budget: Annotated[int | None, Field(0, INT32_MAX, hidden=True, without="None is no limit")] = None
    reasoning_budget_message: Annotated[str | None, Field(hidden=True)] = None
    cache_salt: Annotated[str | None, Field(hidden=True)] = None
    adapter: Annotated[str | Mapping[str, float] | None, Field(hidden=True)] = None
    timeout_s: Annotated[float | None, _NOT_NEGATIVE] = None
    logprobs: Annotated[int, _LOGPROBS] = 0
    logprobs_mode: Annotated[str, Field(choices=LOGPROBS_MODES, hidden=True)] = "raw_logprobs"
    prompt_logprobs: Annotated[int, _LOGPROBS] = 0
    speculative: Annotated[str | None, Field(choices=SPECULATIVE_MODES, hidden=True)] = None
    num_speculative_tokens: Annotated[int | None, Field(1, 15, hidden=True)] = None
    response_format: InitVar[Mapping[str, Any] | type | None] = None

    def __post_init__(self, response_format: Mapping[str, Any] | type | None) -> None:
        check(self)
        if response_format is not None:
            given = [name for name in FORMATS if getattr(self, name) is not None]
            if given:
                raise invalid(f"response_format and {given[0]} were both given: choose one")
            self._set(json_schema=values.schema_of(response_format))
        self._set(dry_sequence_breakers=values.breakers(self.dry_sequence_breakers))
        if self.samplers is not None:
            self._set(samplers=values.sampler_names(self.samplers))
        self._set(stop=values.stop_strings(self.stop))
        self._set(stop_token_ids=values.token_ids("stop_token_ids", self.stop_token_ids))
        self._set(bad_words=values.bad_words(self.bad_words))
        if self.allowed_token_ids is not None:
            self._set(allowed_token_ids=values.token_ids("allowed_token_ids", self.allowed_token_ids))
            if not self.allowed_token_ids:
                raise invalid("allowed_token_ids is empty, so no token could be generated: leave it out to allow all")
        if self.json_schema_options is not None:
            self._set(json_schema_options=checked_schema_options(self.json_schema_options))
        if self.choices is not None:
            self._set(choices=values.texts("choices", self.choices))
        if 0 <= self.max_tokens < self.min_tokens:
            raise invalid(
                f"min_tokens={self.min_tokens} is more than max_tokens={self.max_tokens}: raise max_tokens too"
            )
        if self.logits_processor is not None:
            self._set(logits_processor=values.functions("logits_processor", self.logits_processor))
        if self.reasoning_budget_message is not None:
            values.require_text("reasoning_budget_message", self.reasoning_budget_message)
            if self.reasoning_budget is None:
                raise invalid("reasoning_budget_message is given without reasoning_budget, so nothing would write it")
        if self.cache_salt is not None:
            values.require_text("cache_salt", self.cache_salt)
        if self.adapter is not None:
            self._set(adapter=checked_choice(self.adapter))
        if self.logit_bias is not None:
            self._set(logit_bias=values.logit_bias(self.logit_bias))
        self._require_one_form()
        self._require_consistent_samplers()

    def _set(self, **fields: object) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def _require_one_form(self) -> None:
        """Accept one format of the output, and none with ``ignore_eos``."""
        given = [name for name in FORMATS if getattr(self, name) is not None]
        if len(given) > 1:
            raise invalid(f"{' and '.join(given)} were both given: choose one")
        if self.json_schema_options and self.json_schema is None:
            raise invalid("json_schema_options are given without json_schema, so nothing would follow them")
        if self.ignore_eos and given:
            raise invalid(f"ignore_eos does not work with {given[0]}, which decides where the output ends")
        if self.grammar is not None and not isinstance(self.grammar, Grammar):
            values.require_text("grammar", self.grammar)
            require_content("grammar", self.grammar)
        if isinstance(self.json_schema, str):
            require_content("json_schema", self.json_schema)
        if self.regex is not None:
            values.require_text("regex", self.regex)

    def _require_consistent_samplers(self) -> None:
        """Refuse samplers that are turned on but would have no effect."""
        if self.dynatemp_range > 0 and self.temperature == 0:
            raise invalid("dynatemp_range has no effect with a temperature of 0: set temperature too")
        if self.mirostat and self.adaptive_target is not None:
            raise invalid("mirostat and adaptive_target were both given: choose one")
        on = self._samplers_on
        if self.mirostat:
            idle = [name for name in on if name not in BESIDE_MIROSTAT]
            if idle or self.samplers is not None:
                raise invalid(f"mirostat replaces {', '.join(idle) or 'samplers'}: use one or the other")
        if self.samplers is not None:
            on += ["temperature"] if self.temperature not in (0.0, 1.0) else []
            missing = [name for name in dict.fromkeys(on) if name not in self.samplers]
            if missing:
                raise invalid(
                    f"samplers leaves out {', '.join(missing)}, which other parameters turn on: add it to samplers, or "
                    "reset those parameters"
                )

    @property
    def _samplers_on(self) -> list[str]:
        """The samplers that parameters turn on, in their default order."""
        changed = {each.sampler for each in _SAMPLER_FIELDS if getattr(self, each.name) != each.default}
        return [name for name in DEFAULT_SAMPLERS if name in changed]


_SAMPLER_FIELDS = [field for field in fields_of(SamplingParams).values() if field.sampler]
