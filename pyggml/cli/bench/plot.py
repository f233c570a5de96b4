"""Charts of results: a panel for prompts, one for generation, a line for each side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pyggml.cli.bench.measure import Case, Result
from pyggml.cli.bench.report import labels, model_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FORMATS = (".png", ".svg", ".pdf")
_TITLES = {"prompt": "Prefill", "generate": "Decode"}
# Attribute of a case -> label of its axis.
_AXES = {"n_parallel": "concurrent requests", "n_depth": "tokens in the context", "n_tokens": "tokens of each request"}
_DPI = 150
_LOG_RATIO = 8  # ratio of values from which an axis is logarithmic


class Plot:
    """A chart and the file it goes to."""

    def __init__(self, path: str) -> None:
        """Check the file and matplotlib before anything is measured."""
        self._path = Path(path)
        if self._path.suffix.lower() not in _FORMATS:
            raise click.UsageError(f"--plot {path}: the extension must be one of {', '.join(_FORMATS)}.")
        _require_matplotlib()
        is_new = not self._path.exists()
        self._path.open("ab").close()  # raises OSError if it cannot be written
        if is_new:
            self._path.unlink(missing_ok=True)

    def draw(self, results: Sequence[Result]) -> None:
        """Draw the results and write the file."""
        from matplotlib.figure import Figure

        kinds = list(dict.fromkeys(result.case.kind for result in results))
        figure = Figure(figsize=(1 + 5 * len(kinds), 5), layout="constrained")
        for axes, kind in zip(figure.subplots(1, len(kinds), squeeze=False)[0], kinds, strict=True):
            axes.set_title(_TITLES[kind])
            _draw(axes, [result for result in results if result.case.kind == kind])
        names = model_names([result.side for result in results])
        models = {f"{names[result.side.model]} ({result.model_info.description})": None for result in results}
        figure.suptitle(", ".join(models), fontsize="medium")
        figure.savefig(self._path, dpi=_DPI)


def _draw(axes: Axes, results: Sequence[Result]) -> None:
    """Draw one kind of case: the speed over the attribute with most values, and a line per combination of the rest."""
    along = max(_AXES, key=lambda name: len({getattr(result.case, name) for result in results}))
    values = sorted({getattr(result.case, along) for result in results})
    names = _line_names(results, along)
    for index, label in enumerate(dict.fromkeys(names)):
        line = [result for result, name in zip(results, names, strict=True) if name == label]
        medians = [result.median for result in line]
        below = [result.median - min(result.speeds) for result in line]
        above = [max(result.speeds) - result.median for result in line]
        if len(values) == 1:
            axes.bar([index], medians, 0.6, yerr=[below, above], capsize=4, label=label)
        else:
            positions = [getattr(result.case, along) for result in line]
            axes.errorbar(positions, medians, [below, above], marker="o", capsize=4, label=label)
    if len(values) == 1:
        axes.set_xticks([])
        axes.set_xlabel(f"{results[0].case.name}, {_named(results[0].case, 'n_parallel')}")
    else:
        _set_ticks(axes, values)
        axes.set_xlabel(_AXES[along])
    axes.set_ylabel("tokens per second, all requests together")
    axes.set_ylim(bottom=0)
    axes.set_axisbelow(True)
    axes.grid(alpha=0.3, axis="both" if len(values) > 1 else "y")
    axes.legend(fontsize="small")


def _set_ticks(axes: Axes, values: Sequence[int]) -> None:
    if values[0] > 0 and values[-1] >= _LOG_RATIO * values[0]:
        axes.set_xscale("log", base=2)
    axes.set_xticks(values, [str(value) for value in values])
    axes.minorticks_off()
    axes.margins(x=0.1)


def _line_names(results: Sequence[Result], along: str) -> list[str]:
    """Return the line of each result: its side, and attributes of its case that differ, except ``along``."""
    sides = labels(list(dict.fromkeys(result.side for result in results)))
    others = [name for name in _AXES if name != along and len({getattr(result.case, name) for result in results}) > 1]
    return [", ".join([sides[result.side], *(_named(result.case, name) for name in others)]) for result in results]


def _named(case: Case, name: str) -> str:
    forms = {"n_parallel": "{} concurrent", "n_depth": "after {}", "n_tokens": "{} tokens"}
    return forms[name].format(getattr(case, name))


def _require_matplotlib() -> None:
    try:
        import matplotlib as mpl  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        raise click.ClickException("--plot needs matplotlib: pip install matplotlib") from None
