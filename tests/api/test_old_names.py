"""Import paths and names of earlier versions: the same objects as under their new ones."""

from __future__ import annotations

import importlib

import pytest

from pyggml._core import moved_modules

RENAMED = {
    "pyggml.batch": {
        "Broken": "InvalidRow",
        "Names": "FieldNames",
        "PlainAnswering": "PromptRowProcessor",
        "answer_all": "process_rows",
        "fitting": "fit_to_column",
        "identity": "job_id",
        "open_answering": "open_row_processor",
    },
    "pyggml.cache": {"shown_name": "display_name"},
    "pyggml.hub": {"reference_meant_by": "guess_reference"},
    "pyggml.remote": {
        "Loan": "ExportedDevices",
        "VARIABLE": "KEY_VARIABLE",
        "default_file": "default_key_file",
        "found_key": "find_key",
        "lent_by": "list_exported_devices",
        "made_key": "create_key",
    },
    "pyggml.server": {
        "Forwarded": "ForwardedRequest",
        "Given": "PartialSettings",
        "Relay": "WorkerProxy",
        "answers": "run_forwarded",
        "from_text": "parse_text",
        "hints": "foreign_variable_hints",
    },
    "pyggml.units": {"bytes_of": "parse_bytes"},
}


@pytest.mark.parametrize(("old", "new"), moved_modules._NEW_NAMES.items())
def test_moved_modules_are_found_under_their_old_names(old: str, new: str) -> None:
    module = importlib.import_module(new)
    assert importlib.import_module(old) is module
    assert module.__spec__ is not None
    assert module.__spec__.name == new


@pytest.mark.slow_except("pyggml.batch", "pyggml.cache", "pyggml.hub", "pyggml.remote", "pyggml.server")
@pytest.mark.parametrize("module", RENAMED)
def test_renamed_names_are_found_under_their_old_ones(module: str) -> None:
    found = importlib.import_module(module)
    for old, new in RENAMED[module].items():
        assert getattr(found, old) is getattr(found, new)
