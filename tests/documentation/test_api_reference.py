"""The API reference: it has every public name and no other, and docstrings describe every parameter."""

from __future__ import annotations

import re

from support.paths import ROOT
from support.public_api import (
    UNIMPORTED,
    callables,
    documented_names,
    public_modules,
    public_names,
    value_of,
)

IMPORT = re.compile(r"^\s*from (pyggml[\w.]*) import ([\w, ]+)", re.MULTILINE)

#: Imports in examples that are no part of the API.
NOT_PUBLIC = {
    "pyggml._core.ffi.CData",  # the type of cffi's objects, for annotations of code that uses the C API
    "pyggml.families.llama2",  # for contributors: the declaration of a family
    "pyggml.families._family.Family",
    "pyggml.families._family.Signs",
    "pyggml.families._family.Variant",
}


def test_every_public_name_is_listed() -> None:
    listed = documented_names()
    values = [id(value_of(name)) for name in listed if not name.startswith(UNIMPORTED)]
    missing = [
        name
        for name, value in public_names().items()
        if name not in listed and (isinstance(value, (int, str)) or id(value) not in values)
    ]
    assert not missing, f"add these to a page in docs/reference/api/: {missing}"


def test_every_listed_name_exists_and_is_listed_once() -> None:
    listed = documented_names()
    assert len(listed) > 200
    assert sorted(listed) == sorted(set(listed))
    for name in listed:
        if name.startswith(UNIMPORTED):
            assert name in public_names()
        else:
            value_of(name)


def test_names_in_examples_are_public() -> None:
    sources = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.py")]
    known = {*public_names(), *public_modules(), *documented_names(), *NOT_PUBLIC}
    for source in sources:
        for module, names in IMPORT.findall(source.read_text(encoding="utf-8")):
            for name in re.split(r",\s*", names.strip().rstrip(",")):
                full = f"{module}.{name.partition(' ')[0]}"
                assert full in known, f"{source}: {full}"


def test_every_parameter_is_described() -> None:
    missing = {each.name: sorted(each.undescribed()) for each in callables()}
    found = {name: parameters for name, parameters in missing.items() if parameters}
    assert not found, "\n".join(f"{name}: {', '.join(parameters)}" for name, parameters in found.items())


def test_every_public_function_has_a_docstring() -> None:
    assert not [each.name for each in callables() if not each.docs and each.parameters]
