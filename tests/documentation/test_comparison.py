"""The README's comparison and its plot agree with benchmarks/results."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import make_comparison
import result_files

STALE = "run `python tools/make_comparison.py`"


def test_the_readme_shows_the_results() -> None:
    text = make_comparison.README.read_text(encoding="utf-8")
    assert make_comparison.readme(text) == text, STALE


def test_the_plot_shows_the_results() -> None:
    text = make_comparison.PLOT.read_text(encoding="utf-8")
    assert text == make_comparison.plot(), STALE
    lines = ET.fromstring(text).findall("{http://www.w3.org/2000/svg}polyline")
    measured = result_files.read("callers")["requests_per_s"]
    assert len(lines) == len(measured)
    assert {len(line.attrib["points"].split()) for line in lines} == {len(values) for values in measured.values()}


def test_every_side_answered_every_probe() -> None:
    sides = result_files.read("features")["sides"]
    assert sides.keys() == make_comparison.SIDES.keys()
    for seen in sides.values():
        assert {probe for _, probe, _ in make_comparison.ROWS} <= seen.keys()


def test_a_change_of_a_result_shows() -> None:
    features, callers = result_files.read("features"), result_files.read("callers")
    assert all(run["right"] == 8 for run in features["sides"]["pyggml"]["threads"])
    features["sides"]["pyggml"]["threads"][0]["right"] = 5
    features["sides"]["xllamacpp"]["cancel"] = {"died": "SIGSEGV"}
    changed = make_comparison.table(features, callers)
    assert "all right: 4, errors or wrong answers: 1" in changed
    assert re.search(r"process dies\*\* \(SIGSEGV\)", changed)
