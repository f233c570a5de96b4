"""Write the type stubs and the documentation tables that come from the declarations in `pyggml/families`.

Run it after a change to a family:

    python tools/make_families.py

A test compares the results with the files in the repository.
"""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path

from pyggml import Inference, families
from pyggml.inference import CLASSES, NAMES

ROOT = Path(__file__).resolve().parent.parent
STUB = ROOT / "pyggml" / "_family_classes.pyi"
DOCS = ROOT / "docs" / "reference"

HEADER = """\
# The classes and methods that pyggml/inference.py creates for the families. Written by tools/make_families.py.

from typing_extensions import Unpack

from pyggml._keywords import LoadKeywords
from pyggml.inference import FamilyModel, TokenizerPath
from pyggml.source import Source
"""

FACTORIES = '''\
class Factories:
    """The methods of :class:`pyggml.Inference` that load models of particular families."""
'''


def stub_text() -> str:
    """The whole text of the stub file."""
    exported = "".join(f'    "{name}",\n' for name in sorted(NAMES, key=_natural))
    classes = [f'class {name}(FamilyModel):\n    """{kind.__doc__}"""\n' for name, kind in CLASSES.items()]
    others = [f"{name} = {kind.__name__}\n" for name, kind in NAMES.items() if name not in CLASSES]
    methods = [_method_stub(kind.factory) + _aliases(kind.kind) for kind in CLASSES.values()]
    parts = [HEADER, f"__all__ = [\n{exported}]\n", *classes, *others, FACTORIES, *methods]
    return "\n".join(parts)


def _natural(name: str) -> list[int | str]:
    """Return ruff's sort key of a name: numbers by value."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def _aliases(kind: families.Kind) -> str:
    return "".join(f"    {name} = {kind.factory}\n" for name in kind.other_factories)


def _method_stub(name: str) -> str:
    method = getattr(Inference, name)
    signature = str(inspect.signature(method)).replace("'", "").replace("self: Inference", "self")
    parameters, result = signature[1:].split(") -> ")
    docstring = textwrap.indent(f'"""{method.__doc__}"""', " " * 8)
    return f"    def {name}(\n        {parameters}\n    ) -> {result}:\n{docstring}\n"


def table_of_families() -> str:
    rows = [
        (
            f"`{family.name}`: {family.title}",
            ", ".join(family.architectures),
            _codes(family.stop_tokens, " "),
            _codes(family.more_stop_tokens, " "),
        )
        for family in sorted(families.FAMILIES, key=lambda family: family.name)
        if not family.is_encoder
    ]
    every_other = (f"`{families.GENERIC.name}`", "every other", "what the file and the engine say", "")
    return _table(("family", "GGUF architecture", "stop tokens", "published files add"), [*rows, every_other])


def table_of_encoders() -> str:
    rows = [
        (f"`{family.name}`: {family.title}", ", ".join(family.architectures), _codes(family.stop_tokens, " "))
        for family in sorted(families.FAMILIES, key=lambda family: family.name)
        if family.is_encoder
    ]
    return _table(("family", "GGUF architecture", "end of a text"), rows)


def table_of_embedding_layouts() -> str:
    layouts = [layout for layout in families.LAYOUTS if layout.is_encoder or families.CLASSIFIER in layout.switches]
    rows = [
        (
            _codes(layout.model_types) + "".join(f", `{key}` {value!r}" for key, value in layout.told_by.items()),
            layout.name,
            "yes" if any(tensor.target == "cls.output.weight" for tensor in layout.tensors) else "",
        )
        for layout in sorted(layouts, key=lambda layout: layout.name)
    ]
    return _table(("`model_type`", "models", "rerankers, too"), rows)


def table_of_classes() -> str:
    rows = [
        (
            _codes((kind.factory, *kind.kind.other_factories)),
            _codes((name, *kind.kind.other_names)),
            _codes(family.name for family in kind.families),
        )
        for name, kind in CLASSES.items()
    ]
    any_model = ("`use_auto`", "the class of its family, else `LLM`", "everything")
    return _table(("method", "returns", "takes"), [*rows, any_model])


def table_of_layouts() -> str:
    rows = [
        (_codes(layout.model_types), layout.name, "; ".join(f.title for f in families.FAMILIES if layout in f.builds))
        for layout in sorted(families.LAYOUTS, key=lambda layout: layout.name)
        if not layout.is_encoder
    ]
    return _table(("`model_type`", "models", "families"), rows)


def table_of_formats() -> str:
    sys.path.insert(0, str(ROOT / "tests"))
    from support.checkpoints import family_formats

    head, rows = family_formats.table()
    return _table(head, rows)


def directives_of_classes() -> str:
    directives = (f".. autoclass:: pyggml.{name}(source=None, tokenizer=None, **options)\n" for name in CLASSES)
    return "```{eval-rst}\n" + "\n".join(directives) + "```\n"


def _codes(names: Iterable[str], separator: str = ", ") -> str:
    return separator.join("`{}`".format(name.replace("|", r"\|")) for name in names)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, ("---",) * len(head), *rows))


#: Page -> its generated parts, by the name in the comment before each.
TABLES: dict[str, dict[str, Callable[[], str]]] = {
    "model-families.md": {"families": table_of_families, "encoders": table_of_encoders, "classes": table_of_classes},
    "api/families.md": {"classes": directives_of_classes},
    "hugging-face-checkpoints.md": {
        "layouts": table_of_layouts,
        "embedding layouts": table_of_embedding_layouts,
        "formats": table_of_formats,
    },
}


def page(name: str) -> str:
    """The whole text of a page, with its tables up to date."""
    text = (DOCS / name).read_text(encoding="utf-8")
    for mark, table in TABLES[name].items():
        start, end = f"<!-- {mark}: written by tools/make_families.py -->\n", "<!-- end -->\n"
        text, n = re.subn(f"(?<={re.escape(start)}).*?(?={end})", lambda _: table(), text, count=1, flags=re.DOTALL)  # noqa: B023
        assert n == 1, f"{name} has no {start}"
    return text


def main() -> None:
    STUB.write_text(stub_text(), encoding="utf-8")
    for name in TABLES:
        (DOCS / name).write_text(page(name), encoding="utf-8")
    print(f"{STUB.name}, {', '.join(TABLES)}: {len(families.FAMILIES)} families, {len(CLASSES)} classes")


if __name__ == "__main__":
    main()
