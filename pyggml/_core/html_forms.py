"""Results as HTML, for notebooks: a class names the sections, and one template escapes and lays out all of them.

The text of files, users and models may be anything, so the template escapes every value. It has no scripts, and neither
colours nor backgrounds: text takes the colour of the notebook, light or dark. Its class keeps MathJax, which notebooks
run on HTML, from setting what stands between two dollar signs as a formula.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Template

_TEMPLATE = """\
<div class="tex2jax_ignore" style="max-width: 60em">
{%- for section in sections %}
{%- if section.is_folded %}
<details><summary style="cursor: pointer; opacity: 0.8">{{ section.title }}</summary>
{%- elif section.title %}
<div style="font-weight: bold">{{ section.title }}</div>
{%- endif %}
{%- if section.text %}
<div style="white-space: pre-wrap; overflow-wrap: anywhere; max-height: 30em; overflow: auto; margin: 0.3em 0">
{{- section.text -}}
</div>
{%- endif %}
{%- if section.rows %}
<table style="margin: 0.3em 0; border-collapse: collapse">
{%- if section.columns %}
<tr><th></th>{% for name in section.columns %}<th style="text-align: right">{{ name }}</th>{% endfor %}</tr>
{%- endif %}
{%- for row in section.rows %}
<tr><td style="text-align: left; vertical-align: top; opacity: 0.65; white-space: nowrap">{{ row[0] }}</td>
{%- for value in row[1:] %}
<td style="text-align: {{ 'right' if section.columns else 'left' }}; overflow-wrap: anywhere">{{ value }}</td>
{%- endfor %}</tr>
{%- endfor %}
</table>
{%- endif %}
{%- if section.is_folded %}
</details>
{%- endif %}
{%- endfor %}
</div>"""


@dataclass(frozen=True)
class Section:
    """A part of a result's HTML; empty parts are left out.

    Attributes:
        title: its title.
        text: a text whose lines and spaces stay; a long one scrolls.
        rows: a name and its values each.
        columns: titles of the values.
        is_folded: only the title is shown until the reader clicks on it.
    """

    title: str = ""
    text: str = ""
    rows: tuple[tuple[str, ...], ...] = ()
    columns: tuple[str, ...] = ()
    is_folded: bool = False


class HTMLReady:
    """An object that notebooks show as HTML."""

    @abstractmethod
    def _html_sections(self) -> Iterable[Section]:
        """Return the sections to show."""

    def _repr_html_(self) -> str:
        """Return the object as HTML, for notebooks."""
        return _template().render(sections=list(self._html_sections()))


@cache
def _template() -> Template:
    from jinja2 import Environment  # imported when a notebook first shows something

    return Environment(autoescape=True).from_string(_TEMPLATE)
