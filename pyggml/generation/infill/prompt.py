"""Prompts for infilling, as token ids."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyggml._core.cached_property import cached_property
from pyggml._core.checks import INT32_MAX, integer, invalid, items, shown
from pyggml.errors import ContextOverflowError, InvalidParameterError
from pyggml.generation.infill.formats import FileFormat, InfillFormat, format_of
from pyggml.tokenizer import Tokenizer

ExtraFiles = Mapping[str, str] | Iterable[tuple[str, str]]

#: Names in the prompt where the caller gives none.
_REPOSITORY, _PATH = "repository", "file"
#: Share of what a prefix and a suffix that are too long keep together: what precedes the gap says more about it.
_PREFIX_SHARE = 0.75
# A character that no tokenizer joins with the text behind it.
_MARK = "☺"
_SPECIAL = re.compile(r"<\|\w+\|>|<\w+>")


@dataclass(frozen=True)
class InfillPrompt:
    """A prompt for infilling, from :meth:`LLM.infill_prompt <pyggml.LLM.infill_prompt>`.

    Attributes:
        token_ids: the prompt.
        stop_token_ids: tokens that end the text, in addition to the model's stop tokens.
        n_files: number of other files in it.
        is_truncated: parts of the prefix, the suffix or the files are left out.
    """

    token_ids: list[int]
    stop_token_ids: tuple[int, ...]
    n_files: int
    is_truncated: bool


@dataclass(frozen=True)
class InfillTexts:
    """Texts to make a prompt of, checked but not tokenized; see :meth:`LLM.infill <pyggml.LLM.infill>`."""

    prefix: str
    suffix: str
    files: Sequence[tuple[str, str]] = ()
    path: str | None = None
    repository: str | None = None

    @property
    def n_chars(self) -> int:
        """Number of characters to tokenize."""
        return len(self.prefix) + len(self.suffix) + sum(len(text) for _, text in self.files)


class InfillPrompts:
    """Makes the prompts of one model."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Make prompts with a model's tokenizer."""
        self._tokenizer = tokenizer

    def checked(
        self,
        prefix: str,
        suffix: str,
        extra_files: ExtraFiles | None = None,
        path: str | None = None,
        repository: str | None = None,
    ) -> InfillTexts:
        """Check texts without tokenizing them. Args and errors as :meth:`LLM.infill <pyggml.LLM.infill>`."""
        files = _checked_files(extra_files)
        texts = {"prefix": prefix, "suffix": suffix, "path": path, "repository": repository}
        for name, text in texts.items():
            if not isinstance(text, str) and not (text is None and name in ("path", "repository")):
                raise invalid(f"{name} must be text, not {shown(text)}")
        form = self._format  # raises for models without one
        if files and form.files is None:
            raise InvalidParameterError(
                "this model has no format for extra_files: put what matters of them into the prefix, as comments"
            )
        return InfillTexts(prefix, suffix, files, path, repository)

    def prompt(self, texts: InfillTexts, max_tokens: int | None = None) -> InfillPrompt:
        """Make a prompt. Args and errors as :meth:`LLM.infill_prompt <pyggml.LLM.infill_prompt>`."""
        files, path, repository = texts.files, texts.path, texts.repository
        names = bool(files) or path is not None or repository is not None
        blocks, current = self._files(files, path or _PATH, repository or _REPOSITORY) if names else ([], [])
        before = self._plain(texts.prefix)
        after = self._continued(texts.suffix) if texts.suffix else []
        if max_tokens is None:
            n_files, is_cut = len(files), False
        else:
            limit = integer("max_tokens", max_tokens, 1, INT32_MAX)
            n_files, before, after, is_cut = self._fitting(limit, blocks, current, before, after)
        token_ids = self._joined(self._kept(blocks, n_files), current, before, after)
        return InfillPrompt(token_ids, self._stop_ids, n_files, is_cut or n_files < len(files))

    # --- parts ------------------------------------------------------------------------------------------------

    def _files(self, files: Sequence[tuple[str, str]], path: str, repository: str) -> tuple[list[list[int]], list[int]]:
        """The tokens before the first file and of each file, and those before the prefix."""
        form = self._format.files
        if form is None:
            return [], []
        first = self._marked(form.repository, name=repository)
        blocks = [self._marked(form.file, path=name, text=text) for name, text in files]
        return [first, *blocks], self._marked(form.current + "{path}\n" * form.begins_prefix, path=path)

    def _joined(
        self, blocks: Sequence[Sequence[int]], current: Sequence[int], before: Sequence[int], after: Sequence[int]
    ) -> list[int]:
        form, files = self._format, [token_id for block in blocks for token_id in block]
        layout = form.files or FileFormat("")
        begin, end = self._token(form.prefix), self._token(form.suffix)
        if layout.is_inside:
            opening = [*begin, *files, *current]
        elif layout.begins_prefix and current:  # its first token separates the files
            opening = [*files, *current[:1], *begin, *current[1:]]
        else:
            opening = [*files, *current, *begin]
        parts = [[*opening, *before], [*end, *after]]
        if form.is_suffix_first:
            parts.reverse()
        first, last = self._tokenizer.vocab.around
        del last  # what follows is the text to generate
        return [*first, *parts[0], *parts[1], *self._token(form.middle)]

    def _fitting(
        self, limit: int, blocks: Sequence[list[int]], current: list[int], before: list[int], after: list[int]
    ) -> tuple[int, list[int], list[int], bool]:
        """Leave out the first files, then the beginning of the prefix and the end of the suffix.

        Returns:
            The number of files that are left, the prefix, the suffix, and True if they are cut.
        """
        n_files = max(len(blocks) - 1, 0)
        while n_files and len(self._joined(self._kept(blocks, n_files), current, before, after)) > limit:
            n_files -= 1
        around = len(self._joined(self._kept(blocks, n_files), current, [], []))
        n_left = limit - around
        if n_left < 1:
            raise ContextOverflowError(
                f"max_tokens={limit} leaves no tokens for prefix and suffix: the format itself takes {around}"
            )
        if len(before) + len(after) <= n_left:
            return n_files, before, after, False
        n_before = min(len(before), max(round(n_left * _PREFIX_SHARE), n_left - len(after)))
        return n_files, before[len(before) - n_before :], after[: n_left - n_before], True

    @staticmethod
    def _kept(blocks: Sequence[list[int]], n_files: int) -> list[list[int]]:
        """The repository's name and the last files, the nearest to the text."""
        return [*blocks[:1], *blocks[len(blocks) - n_files :]] if blocks and n_files else list(blocks[:1])

    # --- tokens -----------------------------------------------------------------------------------------------

    @cached_property
    def _format(self) -> InfillFormat:
        return format_of(self._tokenizer.vocab)

    @cached_property
    def _puts_space_first(self) -> bool:
        """True if a text is encoded with a space in front of it."""
        return b"".join(map(self._tokenizer.piece, self._plain("a"))) == b" a"

    @property
    def _stop_ids(self) -> tuple[int, ...]:
        form, vocab = self._format, self._tokenizer.vocab
        ids = [vocab.find(text) for text in (*form.needed, *form.others)]
        return tuple(dict.fromkeys(token_id for token_id in ids if token_id is not None))

    def _token(self, text: str) -> list[int]:
        token_id = self._tokenizer.vocab.find(text) if text else None
        return [] if token_id is None else [token_id]

    def _marked(self, template: str, **values: str) -> list[int]:
        """The tokens of a template, in which only its own special tokens are special."""
        ids: list[int] = []
        end = 0
        for found in (*_SPECIAL.finditer(template), None):
            text = template[end : found.start() if found else None].format(**values)
            ids += self._continued(text) if text else []
            ids += self._token(found[0]) if found else []
            end = found.end() if found else end
        return ids

    def _plain(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special=False, parse_special=False)

    def _continued(self, text: str) -> list[int]:
        """The tokens of a text that follows others: without the space that some tokenizers put before a text."""
        if not self._puts_space_first:
            return self._plain(text)
        mark, ids = self._plain(_MARK), self._plain(_MARK + text)
        return ids[len(mark) :] if ids[: len(mark)] == mark else self._plain(text)


def _checked_files(given: ExtraFiles | None) -> list[tuple[str, str]]:
    files = list(given.items()) if isinstance(given, Mapping) else [] if given is None else items("extra_files", given)
    for each in files:
        if not (isinstance(each, (tuple, list)) and len(each) == 2 and all(isinstance(text, str) for text in each)):
            raise invalid(f"extra_files must be paths and their texts, as a mapping or pairs, not {shown(each)}")
    return [(path, text) for path, text in files]
