"""Formats of infilling prompts, by the tokens of vocabularies.

Sources: the model cards and papers of Qwen2.5-Coder, StarCoder2 (arXiv:2402.19173), Granite code, DeepSeek-Coder
(arXiv:2401.14196) and CodeLlama (arXiv:2308.12950), and mistral-common for Codestral.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyggml._native.vocab import Vocab
from pyggml.errors import InvalidParameterError


@dataclass(frozen=True)
class FileFormat:
    """Format of the files of a repository, which precede the one to fill.

    Attributes:
        file: text before each file. "{path}" stands for its path, here and below; texts of tokens are those tokens.
        repository: text before the first file, with "{name}".
        current: text before the prefix of the file to fill.
        is_inside: the files, and ``current``, follow the token for the prefix.
        begins_prefix: only ``current`` follows the token for the prefix.
    """

    file: str
    repository: str = ""
    current: str = "{path}\n"
    is_inside: bool = False
    begins_prefix: bool = False


@dataclass(frozen=True)
class InfillFormat:
    """A format of prompts, whose parts are tokens by their texts.

    Attributes:
        prefix: token before the prefix.
        suffix: token before the suffix.
        middle: token before the text to generate; "": none.
        files: format of other files; None: the model has none.
        others: tokens that cannot be within a text, in addition.
        is_suffix_first: the suffix precedes the prefix.
    """

    prefix: str
    suffix: str
    middle: str = ""
    files: FileFormat | None = None
    others: tuple[str, ...] = ()
    is_suffix_first: bool = False

    @property
    def needed(self) -> tuple[str, ...]:
        """The tokens that a vocabulary needs for it."""
        texts = () if self.files is None else (self.files.file, self.files.repository)
        markers = [token for token in _FILE_TOKENS if any(token in text for text in texts)]
        return tuple(filter(None, (self.prefix, self.suffix, self.middle, *markers)))


_FILE_TOKENS = ("<|repo_name|>", "<|file_sep|>", "<repo_name>", "<file_sep>", "<reponame>", "<filename>")

_QWEN = FileFormat(
    file="<|file_sep|>{path}\n{text}\n", repository="<|repo_name|>{name}\n", current="<|file_sep|>{path}\n"
)
_STARCODER = FileFormat(
    file="<file_sep>{path}\n{text}", repository="<repo_name>{name}", current="<file_sep>", begins_prefix=True
)
_GRANITE = FileFormat(file="<filename>{path}\n{text}\n", repository="<reponame>{name}", current="<filename>{path}\n")
_DEEPSEEK = FileFormat(file="#{path}\n{text}\n", current="#{path}\n", is_inside=True)
_CODESTRAL = FileFormat(file="+++++ {path}\n{text}\n", current="+++++ {path}\n", is_inside=True)

#: From the most specific to the most general: of a vocabulary, the first that it has all tokens of.
FORMATS = (
    InfillFormat("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", _QWEN, ("<|fim_pad|>",)),
    InfillFormat("<fim_prefix>", "<fim_suffix>", "<fim_middle>", _STARCODER, ("<fim_pad>",)),
    InfillFormat("<fim_prefix>", "<fim_suffix>", "<fim_middle>", _GRANITE, ("<fim_pad>",)),
    InfillFormat("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>", _DEEPSEEK),
    InfillFormat("▁<PRE>", "▁<SUF>", "▁<MID>", None, ("▁<EOT>",)),
    InfillFormat("[PREFIX]", "[SUFFIX]", "", _CODESTRAL, ("[MIDDLE]",), is_suffix_first=True),
    InfillFormat("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", None, ("<|fim_pad|>",)),
    InfillFormat("<fim_prefix>", "<fim_suffix>", "<fim_middle>", None, ("<fim_pad>",)),
    InfillFormat("<fim-prefix>", "<fim-suffix>", "<fim-middle>", None, ("<fim-pad>",)),
)


def format_of(vocab: Vocab) -> InfillFormat:
    """Return the format of a vocabulary.

    Raises:
        InvalidParameterError: it has none.
    """
    found = next((each for each in FORMATS if all(vocab.find(text) is not None for text in each.needed)), None)
    if found is not None:
        return found
    if vocab.fim_pre is None or vocab.fim_suf is None or vocab.fim_mid is None:
        raise InvalidParameterError(
            "this model cannot fill in text: its vocabulary has no tokens for prefix and suffix. Load one that is "
            "trained for it, such as Qwen2.5-Coder, or continue the prefix with generate()"
        )
    return InfillFormat(vocab.text(vocab.fim_pre), vocab.text(vocab.fim_suf), vocab.text(vocab.fim_mid))
