"""How tokens are chosen: every parameter with its type, default, range and meaning, in one table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pyggml._checks import INT32_MAX, UINT32_MAX, c_string, integer, real, refused
from pyggml._fields import Field, check, fields_of, plain_signature

#: The samplers in the order they work. Each does nothing until its parameter is set.
DEFAULT_SAMPLERS = (
    "penalties",
    "dry",
    "top_n_sigma",
    "top_k",
    "typical_p",
    "top_p",
    "min_p",
    "xtc",
    "temperature",
)
_BESIDE_MIROSTAT = ("penalties", "dry", "temperature")

_MAX_BREAKER_BYTES = 40  # upstream would cut a longer one

_COUNT = Field(0, INT32_MAX)
_LOGPROBS = Field(0, 1000, hidden=True)
_AMOUNT = Field(0)
_PART = Field(0, 1)


@dataclass(frozen=True)
class Grammar:
    """A GBNF grammar that the output must match, from its beginning or from where a trigger appears.

    Checked when made; raises InvalidParameterError naming the field. Compiled once for each model, when first used.

    Attributes:
        text: GBNF.
        root: the rule to start with.
        prefix: what of it was written before the output begins, such as the end of a chat's prompt; not with ``lazy``.
        lazy: generate freely until a trigger appears, and only then begin to follow the grammar.
        trigger_patterns: regular expressions (ECMAScript), with ``lazy``. The grammar begins where the first group
            that is not empty begins, or the whole match; what was generated from there on must match it. One with
            ``^`` and ``$`` around it is matched with the complete output so far, others are searched in it.
        trigger_tokens: token ids, with ``lazy``; the grammar begins with the token itself.
    """

    text: str
    root: str = "root"
    prefix: str = ""
    lazy: bool = False
    trigger_patterns: Sequence[str] = ()
    trigger_tokens: Sequence[int] = ()

    def __post_init__(self) -> None:
        _require_text("grammar", self.text)
        _require_text("the grammar's root", self.root)
        _require_text("the grammar's prefix", self.prefix)
        if self.prefix and self.lazy:
            raise refused("a lazy grammar begins with its trigger, so it has no prefix")
        if isinstance(self.trigger_patterns, str) or not isinstance(self.trigger_patterns, Sequence):
            raise refused("trigger_patterns must be a sequence of regular expressions")
        for pattern in self.trigger_patterns:
            _require_text("a trigger pattern", pattern)
        object.__setattr__(self, "trigger_patterns", tuple(self.trigger_patterns))
        token_ids = _token_ids("trigger_tokens", self.trigger_tokens)
        object.__setattr__(self, "trigger_tokens", token_ids)
        if bool(self.lazy) != bool(self.trigger_patterns or token_ids):
            raise refused(
                "a lazy grammar waits for trigger_patterns or trigger_tokens: give some of them, and lazy=True"
            )


@plain_signature
@dataclass(frozen=True)
class SamplingParams:
    """How tokens are chosen, and when generation ends. The defaults are greedy.

    Checked when made; raises InvalidParameterError naming the field.

    Attributes:
        max_tokens: the most tokens to generate.
        temperature: 0 always takes the likeliest token; higher is livelier. Logits are divided by it before sampling.
        top_k: sample among the k likeliest tokens; 0: off.
        top_p: sample among the likeliest tokens that together have this probability; 1: off. Nucleus sampling,
            arXiv:1904.09751.
        min_p: drop tokens less likely than this fraction of the likeliest; 0: off. See llama.cpp pull request 3841.
        typical_p: locally typical sampling; 1: off. See arXiv:2202.00666.
        repeat_penalty: divide the logits of recent tokens by this; 1: off.
        frequency_penalty: subtract this from a token's logit for each time it occurred recently; 0: off.
        presence_penalty: subtract this from the logit of every token that occurred recently; 0: off.
        penalty_last_n: how many tokens the three penalties look back, into the prompt too; 0 turns them off.
        dynatemp_range: let the temperature vary by this much either way; 0: off. It rises where the model is undecided
            and falls where it is sure (llama.cpp pull request 4972).
        dynatemp_exponent: the exponent of the curve along which ``dynatemp_range`` moves the temperature.
        top_n_sigma: keep tokens whose logits are within this many standard deviations of the best; 0: off. See
            arXiv:2411.07641.
        xtc_probability: how often to drop the likeliest tokens; 0: off. Of those above ``xtc_threshold`` only the
            least likely stays (oobabooga/text-generation-webui pull request 6335).
        xtc_threshold: the probability above which ``xtc_probability`` may drop tokens. Above 0.5 there are never two
            such tokens.
        dry_multiplier: strength of the DRY penalty on tokens that would repeat a sequence; 0: off. See
            oobabooga/text-generation-webui pull request 5677.
        dry_base: the DRY penalty grows by this factor with each repeated token.
        dry_allowed_length: the longest repetition that DRY does not penalise.
        dry_penalty_last_n: how many tokens DRY looks back; 0 turns it off.
        dry_sequence_breakers: strings that no repetition reaches across. At most 40 bytes each.
        mirostat: 1 or 2 keeps the surprise at ``mirostat_tau``; 0: off. It takes the place of top_k, top_p and the
            like (arXiv:2007.14966).
        mirostat_tau: the surprise that mirostat aims at, in bits.
        mirostat_eta: how fast mirostat corrects the surprise.
        adaptive_target: prefer tokens near this probability. None: off. See llama.cpp pull request 17927.
        adaptive_decay: how slowly ``adaptive_target`` adapts.
        min_keep: the fewest tokens that samplers must leave; 0: no minimum. It holds for top_k, top_p, min_p,
            typical_p and xtc.
        samplers: names of the samplers, in the order they work. None: ``DEFAULT_SAMPLERS``. One that is switched on
            must be among them.
        seed: seed of the random numbers. None: a new one each time.
        stop: strings that end the generation. Neither they nor parts of them appear in the text.
        stop_token_ids: token ids that end the generation, as the model's own stop tokens do.
        ignore_eos: go on to ``max_tokens``, even where the model would stop. Not with a grammar or JSON schema.
        logit_bias: token id -> number added to its logit. ``-inf`` forbids the token.
        grammar: what the output must match: GBNF text with a rule ``root``, or a Grammar.
        json_schema: what JSON output must match: a JSON schema (a dict, or its JSON text), or a type that stands for
            one (a pydantic model, a dataclass, ``list[int]`` ...; see :func:`schema_of`); not with ``grammar``.
        timeout_s: seconds after which the generation ends with what it has. None: no limit. Counted from submission,
            so that waiting for room in a full queue (``queue_full="wait"``) counts too.
        logprobs: report how likely each generated token was, and this many of the likeliest in its place; 0: off.
            These are the model's own distribution, the log-softmax of its logits before temperature, penalties, bias,
            samplers and grammar.
        prompt_logprobs: the same for the tokens of the prompt. All of it is computed then, a few rows at a time,
            whatever a cached prefix could save.
    """

    max_tokens: Annotated[int, _COUNT] = 256
    temperature: Annotated[float, _AMOUNT] = 0.0
    top_k: Annotated[int, Field(0, INT32_MAX, sampler="top_k")] = 0
    top_p: Annotated[float, Field(0, 1, sampler="top_p")] = 1.0
    min_p: Annotated[float, Field(0, 1, sampler="min_p")] = 0.0
    typical_p: Annotated[float, Field(0, 1, sampler="typical_p")] = 1.0
    repeat_penalty: Annotated[float, Field(0, above_low=True, sampler="penalties")] = 1.0
    frequency_penalty: Annotated[float, Field(sampler="penalties")] = 0.0
    presence_penalty: Annotated[float, Field(sampler="penalties")] = 0.0
    penalty_last_n: Annotated[int, _COUNT] = 64
    dynatemp_range: Annotated[float, Field(0, sampler="temperature")] = 0.0
    dynatemp_exponent: Annotated[float, _AMOUNT] = 1.0
    top_n_sigma: Annotated[float, Field(0, sampler="top_n_sigma")] = 0.0
    xtc_probability: Annotated[float, Field(0, 1, sampler="xtc")] = 0.0
    xtc_threshold: Annotated[float, _PART] = 0.1
    dry_multiplier: Annotated[float, Field(0, sampler="dry")] = 0.0
    dry_base: Annotated[float, Field(1)] = 1.75
    dry_allowed_length: Annotated[int, _COUNT] = 2
    dry_penalty_last_n: Annotated[int, _COUNT] = 64
    dry_sequence_breakers: Sequence[str] = ("\n", ":", '"', "*")
    mirostat: Annotated[int, Field(0, 2)] = 0
    mirostat_tau: Annotated[float, _AMOUNT] = 5.0
    mirostat_eta: Annotated[float, _AMOUNT] = 0.1
    adaptive_target: Annotated[float | None, _PART] = None
    adaptive_decay: Annotated[float, Field(0, 0.99)] = 0.9
    min_keep: Annotated[int, _COUNT] = 0
    samplers: Sequence[str] | None = None
    seed: Annotated[int | None, Field(0, UINT32_MAX - 1)] = None  # the largest one means "choose one" to the engine
    stop: str | Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False
    logit_bias: Mapping[int, float] | None = None
    grammar: str | Grammar | None = None
    json_schema: Mapping[str, Any] | str | type | object | None = None
    timeout_s: Annotated[float | None, _AMOUNT] = None
    logprobs: Annotated[int, _LOGPROBS] = 0
    prompt_logprobs: Annotated[int, _LOGPROBS] = 0

    def __post_init__(self) -> None:
        check(self)
        self._set(dry_sequence_breakers=_breakers(self.dry_sequence_breakers))
        if self.samplers is not None:
            self._set(samplers=_sampler_names(self.samplers))
        self._set(stop=_stop_strings(self.stop))
        self._set(stop_token_ids=_token_ids("stop_token_ids", self.stop_token_ids))
        if self.logit_bias is not None:
            self._set(logit_bias=_logit_bias(self.logit_bias))
        self._require_one_form()
        self._require_consistent_samplers()

    def _set(self, **fields: object) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def _require_one_form(self) -> None:
        """At most one of the ways to say what the output looks like, and none that contradict each other."""
        if self.grammar is not None and self.json_schema is not None:
            raise refused("grammar and json_schema were both given; one output can follow only one")
        if self.ignore_eos and (self.grammar is not None or self.json_schema is not None):
            raise refused("ignore_eos forbids the end that a grammar or json_schema asks for")
        if self.grammar is not None and not isinstance(self.grammar, Grammar):
            _require_text("grammar", self.grammar)

    def _require_consistent_samplers(self) -> None:
        """No sampler that is asked for and would have no effect."""
        if self.dynatemp_range > 0 and self.temperature == 0:
            raise refused("dynatemp_range varies the temperature, which is 0: set temperature too")
        if self.mirostat and self.adaptive_target is not None:
            raise refused("mirostat and adaptive_target each choose the token: give one of them")
        on = self._samplers_on
        if self.mirostat:
            idle = [name for name in on if name not in _BESIDE_MIROSTAT]
            if idle or self.samplers is not None:
                raise refused(f"{', '.join(idle) or 'samplers'} would have no effect: mirostat takes their place")
        if self.samplers is not None:
            on += ["temperature"] if self.temperature not in (0.0, 1.0) else []
            missing = [name for name in dict.fromkeys(on) if name not in self.samplers]
            if missing:
                raise refused(
                    f"samplers leaves out {', '.join(missing)}, which other parameters switch on: name it, or leave "
                    "those alone"
                )

    @property
    def _samplers_on(self) -> list[str]:
        """Those that parameters switch on, in the order they work."""
        changed = {each.sampler for each in _SWITCHES if getattr(self, each.name) != each.default}
        return [name for name in DEFAULT_SAMPLERS if name in changed]


_SWITCHES = [field for field in fields_of(SamplingParams).values() if field.sampler]


def _require_text(name: str, text: object) -> None:
    if not isinstance(text, str):
        raise refused(f"{name} must be text, not {type(text).__name__}")
    c_string(name, text)


def _token_ids(name: str, token_ids: Sequence[int]) -> tuple[int, ...]:
    from pyggml._native import int32_array  # numpy, which a command's help does without

    return tuple(int32_array(name, token_ids).tolist())


def _stop_strings(stop: str | Sequence[str]) -> tuple[str, ...]:
    if isinstance(stop, str):
        stop = (stop,)
    if not isinstance(stop, Sequence) or not all(isinstance(string, str) and string for string in stop):
        raise refused(f"stop must be a non-empty string or a sequence of such, not {stop!r}")
    return tuple(stop)


def _logit_bias(bias: Mapping[int, float]) -> dict[int, float]:
    if not isinstance(bias, Mapping):
        raise refused(f"logit_bias must map token ids to numbers, not be {type(bias).__name__}")
    return {
        integer("a token id of logit_bias", token_id, 0, INT32_MAX): real("a value of logit_bias", value)
        for token_id, value in bias.items()
    }


def _breakers(breakers: Sequence[str]) -> tuple[str, ...]:
    if isinstance(breakers, str) or not isinstance(breakers, Sequence):
        raise refused(f"dry_sequence_breakers must be a sequence of strings, not {breakers!r}")
    for breaker in breakers:
        if not 1 <= len(c_string("a string of dry_sequence_breakers", breaker)) <= _MAX_BREAKER_BYTES:
            raise refused(f"dry_sequence_breakers must have 1 to {_MAX_BREAKER_BYTES} bytes each, unlike {breaker!r}")
    return tuple(breakers)


def _sampler_names(names: Sequence[str]) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise refused(f"samplers must be a sequence of names, not {names!r}")
    for i, name in enumerate(names):
        if name not in DEFAULT_SAMPLERS:
            raise refused(f"there is no sampler {name!r}; there are {', '.join(DEFAULT_SAMPLERS)}")
        if name in names[:i]:
            raise refused(f"samplers names {name!r} twice")
    return tuple(names)
