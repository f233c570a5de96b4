"""Chat templates as Hugging Face's transformers renders them: jinja2 with the same settings."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox


class _Generation(jinja2.ext.Extension):
    """``{% generation %}`` ... ``{% endgeneration %}``, which marks what the assistant said and prints it as it is."""

    tags = {"generation"}  # noqa: RUF012  # the type that jinja2 declares

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.Scope(body, lineno=line)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def render(source: str, **variables: Any) -> str:
    """Render the template with its variables.

    Raises:
        jinja2.TemplateError: it refuses them.
    """
    return compiled(source).render(**variables)


def compiled(source: str) -> jinja2.Template:
    """Compile a template, to render it several times."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda text: dt.datetime.now().strftime(text)
    return environment.from_string(source)
