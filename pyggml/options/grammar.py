"""Grammars that restrict the output, and their compilation for sampling loops outside pyggml."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyggml._core.checks import flag, invalid, require_content, shown
from pyggml.options import sampling_values as values

if TYPE_CHECKING:
    from pyggml._native.grammar import CompiledGrammar
    from pyggml._native.model import Model
    from pyggml._native.vocab import Vocab

#: The keys of ``json_schema_options``, which are options of :func:`pyggml.grammar_of`.
JSON_SCHEMA_OPTIONS = ("any_order", "any_spelling", "additional_properties", "unknown_keywords")


@dataclass(frozen=True)
class Grammar:
    """A GBNF grammar that the output must match, from the start or, if lazy, from a trigger on.

    The constructor raises InvalidParameterError naming any bad field. Each model compiles a grammar once, on first use.

    Attributes:
        text: the grammar, in GBNF.
        root: name of the start rule.
        prefix: text that the grammar consumes before the output, such as the end of a chat prompt; not with ``lazy``.
        lazy: generate freely until a trigger appears, then follow the grammar.
        trigger_patterns: regular expressions (ECMAScript) that start a lazy grammar. The output must match the grammar
            from the start of the first non-empty group, or of the whole match if there is none. A pattern anchored
            with ``^`` and ``$`` must match all of the output so far; others may match anywhere in it.
        trigger_tokens: ids of tokens that start a lazy grammar, which includes the token itself.
    """

    text: str
    root: str = "root"
    prefix: str = ""
    lazy: bool = False
    trigger_patterns: Sequence[str] = ()
    trigger_tokens: Sequence[int] = ()

    def __post_init__(self) -> None:
        values.require_text("grammar", self.text)
        require_content("grammar", self.text)
        values.require_text("the grammar's root", self.root)
        values.require_text("the grammar's prefix", self.prefix)
        if self.prefix and flag("lazy", self.lazy):
            raise invalid("a grammar cannot have both lazy=True and a prefix: a lazy grammar starts at its trigger")
        if isinstance(self.trigger_patterns, str) or not isinstance(self.trigger_patterns, Sequence):
            raise invalid("trigger_patterns must be a sequence of regular expressions")
        for pattern in self.trigger_patterns:
            values.require_text("a trigger pattern", pattern)
        object.__setattr__(self, "trigger_patterns", tuple(self.trigger_patterns))
        token_ids = values.token_ids("trigger_tokens", self.trigger_tokens)
        object.__setattr__(self, "trigger_tokens", token_ids)
        if flag("lazy", self.lazy) != bool(self.trigger_patterns or token_ids):
            raise invalid("lazy=True needs trigger_patterns or trigger_tokens, and triggers need lazy=True")

    @staticmethod
    def compile(
        grammar_or_schema: "Grammar | str | Mapping[str, Any] | object",
        vocab: object,
        *,
        json_schema_options: Mapping[str, Any] | None = None,
        stop_token_ids: Sequence[int] = (),
    ) -> "CompiledGrammar":
        """Compile a grammar or a JSON schema for a vocabulary, for a sampling loop outside pyggml.

        Args:
            grammar_or_schema: GBNF text with a rule ``root``, a Grammar that is not lazy, or a JSON schema as
                :func:`pyggml.grammar_of` takes it: a mapping, JSON text that begins with ``{``, or a type.
            vocab: the owner of the vocabulary: an LLM, an Engine, a :class:`pyggml.Model` (``vocab_only`` is enough)
                or its :class:`pyggml.Vocab`.
            json_schema_options: options of :func:`pyggml.grammar_of` for a schema, such as ``{"any_order": True}``.
            stop_token_ids: ids of tokens that end a text, in addition to the end-of-generation tokens of the
                vocabulary and the stop tokens of an LLM or Engine.

        Returns:
            The grammar, whose matchers compute token masks: :class:`pyggml.CompiledGrammar`.

        Raises:
            GrammarError: the grammar cannot be used, or the schema cannot be expressed as one.
            InvalidParameterError: an argument is none of these, or the grammar is lazy.
            TokenizerError: the model has no vocabulary.
            ClosedError: the model was closed.
        """
        from pyggml._native.grammar import CompiledGrammar

        grammar = _as_grammar(grammar_or_schema, checked_schema_options(json_schema_options or {}))
        of_model, ends = _vocabulary(vocab)
        stop_ids = [*ends, *values.token_ids("stop_token_ids", stop_token_ids)]
        return CompiledGrammar(of_model, grammar.text, grammar.root, grammar.prefix, stop_ids)


def _as_grammar(source: object, options: Mapping[str, Any]) -> Grammar:
    from pyggml.schema.grammar import grammar_of

    if isinstance(source, Grammar):
        if source.lazy:
            raise invalid("a matcher follows its grammar from the start: pass a Grammar without lazy=True")
        return source
    is_gbnf = isinstance(source, str) and not source.lstrip().startswith("{")
    if is_gbnf and options:
        raise invalid("json_schema_options are given with a grammar: write them behind its %json")
    return Grammar(str(source) if is_gbnf else grammar_of(source, **options))


def _vocabulary(owner: object) -> "tuple[Model | Vocab, Sequence[int]]":
    """Return the vocabulary of an object that has one, and the ids of its stop tokens."""
    from pyggml._native.model import Model
    from pyggml._native.vocab import Vocab

    if isinstance(owner, (Model, Vocab)):
        return owner, ()
    model = getattr(owner, "model", None)
    if not isinstance(model, Model):
        raise invalid(f"vocab must be an LLM, an Engine, a Model or a Vocab, not {type(owner).__name__}")
    stop_tokens = getattr(owner, "stop_tokens", None) or getattr(owner, "stop_token_ids", None) or ()
    return model, tuple(stop_tokens)


def checked_schema_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Check the names; :func:`pyggml.grammar_of` checks the values."""
    unknown = sorted(map(str, options.keys() - set(JSON_SCHEMA_OPTIONS))) if isinstance(options, Mapping) else [options]
    if unknown:
        known = ", ".join(JSON_SCHEMA_OPTIONS)
        raise invalid(f"json_schema_options must be a mapping with the keys {known}, not {shown(unknown[0])}")
    return dict(options)
