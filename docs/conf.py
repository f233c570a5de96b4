"""Configuration of Sphinx, which builds these pages as a site: ``make docs``.

The pages are plain Markdown, to be read in a repository browser as well. So links go from file to file, and the lists
of links on index pages are the site's navigation, too. Only the pages in reference/api/ have directives.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.ext.napoleon import Config
from sphinx.ext.napoleon.docstring import GoogleDocstring
from sphinx.transforms import SphinxTransform
from sphinx.transforms.post_transforms import SphinxPostTransform

import pyggml

REPOSITORY = "https://github.com/pyggml/pyggml"
ROOT = Path(__file__).resolve().parent.parent

project = "pyggml"
version = release = pyggml.__version__
html_show_copyright = False
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]

nitpicky = True
# Names without pages here: of Python and other packages, type variables, and classes of this package that users only
# pass on.
_OTHERS = (
    "asyncio|builtins|collections|dataclasses|json|numpy|np|npt|os|pa|pathlib|pyarrow|ray|starlette|time|types|typing"
)
_PYTHONS = "optional|Any|Callable|InitVar|Iterable|Iterator|Mapping|Path|Self|Sequence|Unpack"
_PASSED_ON = (
    "Application|BaseModel|CData|ChatRequest|Collector|Config|DataType|Dataset|Envelope|ExtraFiles|Forward|HuggingFace|"
    "Adapters|ApiKey|Logprob|LogitsProcessing|LoopWaiter|"
    "ModelLike|NamesTokens|Origin|SharedOnCopy|Similarity|Vectors|"
    "PartialFile|PendingRequest|PlannedTensor|Planner|PromptRequest|Pooling|Text|TokenIds|"
    "TokenPooling|Waker|Weight|"
    "TextOptions|TokenBatch|VectorOptions|LayerOptions|RerankRequest|EmbeddingRequest|EmbedOptions|Role|TokenLoop|"
    "CreateEmbeddingResponse|(?:Base)?LlamaTokenizer|LlamaDraftModel|BaseLlamaCache|"
    "LlamaChatCompletionHandler(?:NotFoundException)?|llama_cpp"
)
nitpick_ignore_regex = [("py:.*", rf"(?:{_OTHERS})\..*|{_PYTHONS}|(?:.*\.)?(?:{_PASSED_ON}|_[A-Za-z]\w*|[A-Z])")]

html_theme = "furo"
html_title = "pyggml"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_search_scorer = str(ROOT / "docs" / "search_scores.js")
html_theme_options = {
    "source_repository": REPOSITORY,
    "source_branch": "main",
    "source_directory": "docs/",
}

highlight_language = "text"
copybutton_prompt_text = r"\$ |>>> "
copybutton_prompt_is_regexp = True
copybutton_line_continuation_character = "\\"

myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_mock_imports = ["ray"]  # half a gigabyte, for five docstrings
autodoc_typehints_format = "short"
autoclass_content = "both"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
toc_object_entries_show_parents = "hide"


class LinksToRepository(SphinxTransform):
    """Turn links to files outside this folder into links to the repository."""

    default_priority = 500

    def apply(self, **_kwargs: object) -> None:
        """Replace such links of one page."""
        for node in [
            *self.document.findall(addnodes.download_reference),
            *self.document.findall(addnodes.pending_xref),
        ]:
            if node.get("reftype") == "myst":
                path = (self.env.doc2path(self.env.docname).parent / node["reftarget"]).resolve()
                path = path if path.exists() else path.with_name(f"{path.name}.md")  # without the suffix of a page
                if path.exists() and path.is_relative_to(ROOT) and not path.is_relative_to(self.env.srcdir):
                    address = f"{REPOSITORY}/blob/main/{path.relative_to(ROOT).as_posix()}"
                    node.replace_self(nodes.reference("", "", *node.children, refuri=address))


def add_navigation(_app: Sphinx, docname: str, source: list[str]) -> None:
    """Append tables of contents to an index page: its lists of links, each with its heading as the caption."""
    if docname.rpartition("/")[2] == "index":
        source[0] += "".join(_tables_of_contents(source[0]))


def _tables_of_contents(page: str) -> Iterator[str]:
    for section in page.split("\n## ")[1:]:
        caption = section.partition("\n")[0]
        entries = re.findall(r"^- \[([^\]]+)\]\(([\w/-]+)\.md\)", section, re.MULTILINE)
        lines = "\n".join(f"{text} <{path}>" for text, path in entries)
        yield f"\n\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{lines}\n```\n"


#: The type of a field that is declared with its range.
ANNOTATED = re.compile(r"(?:\S+\.)?Annotated\[(.*), \S*Field\(.*\)\]")
DOCSTRINGS: Any = Config(napoleon_use_ivar=False, napoleon_attr_annotations=True)


def read_docstring(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Convert a docstring in Google's style.

    This is what the extension napoleon does, except that it takes text before a colon for a type in the section Returns
    and in the docstrings of properties, and ignores the sections of these.
    """
    kind: Any = "method" if what in ("attribute", "data", "property") else what
    given = [":returns:" if line == "Returns:" else line for line in lines]
    text = "\n".join(_attributes(GoogleDocstring(given, DOCSTRINGS, app, kind, name, obj, options).lines()))
    lines[:] = text.replace("ffn_.*", r"ffn\_.\*").split("\n")  # the beginning of a pattern, and no reference


def _attributes(lines: list[str]) -> list[str]:
    """Put the types of attributes next to their names, and leave them out of the page's table of contents."""
    found: list[str] = []
    first = 0
    for line in lines:
        if line.startswith(".. attribute::"):
            found += [line, "   :no-contents-entry:"]
            first = len(found)
        elif line.startswith("   :type: "):
            found.insert(first, ANNOTATED.sub(r"\1", line))
        else:
            found.append(line)
    return found


def tidy_signature(
    _app: Sphinx, _what: str, _name: str, _obj: object, _options: object, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """Leave out parameters that begin with an underscore, which are for the package itself and come last.

    A default that is no expression, such as a factory's, becomes an ellipsis.
    """
    if signature is not None:
        signature = re.sub(r"(, \*)?(, _\w+: [^,]+)+\)$", ")", signature)
        signature = re.sub(r"(?<== )<[^<>]+>", "...", signature)
    return signature, returns


#: Types of keyword arguments, which only type checkers see -> the class or function with the same parameters.
KEYWORDS = {
    "SamplingOverrides": "pyggml.SamplingParams",
    "LoadKeywords": "pyggml.load",
    "EstimateKeywords": "pyggml.memory.estimate.estimate",
    "ChatKeywords": "pyggml.LLM.chat",
    "TurnKeywords": "pyggml.LLM.chat",
}


class NamesOfTypes(SphinxPostTransform):
    """Complete names in annotations and docstrings that lack their module, as in the source."""

    default_priority = 5  # before references are resolved

    def run(self, **_kwargs: object) -> None:
        """Complete the references of one page; Sphinx itself looks for names in other modules."""
        objects = self.env.domains.python_domain.objects
        for node in self.document.findall(addnodes.pending_xref):
            if node["refdomain"] == "py":
                target = node["reftarget"]
                if hasattr(builtins, target):
                    node["reftarget"] = f"builtins.{target}"  # rather than an attribute of this name
                elif f"pyggml.{target}" in objects:
                    node["reftarget"] = f"pyggml.{target}"
                elif target in KEYWORDS:
                    node["reftype"], node["reftarget"] = "obj", KEYWORDS[target]


def setup(app: Sphinx) -> None:
    """Register the functions above."""
    app.add_transform(LinksToRepository)
    app.add_post_transform(NamesOfTypes)
    app.connect("source-read", add_navigation)
    app.connect("autodoc-process-docstring", read_docstring)
    app.connect("autodoc-process-signature", tidy_signature)
