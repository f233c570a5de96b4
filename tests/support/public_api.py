"""The public names of the package, the parameters of each, and the parameters that docstrings describe."""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from typing_extensions import is_protocol

import pyggml
from support.paths import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: Public modules that no front end needs, and that are no attributes of the package either.
_MORE_MODULES = {"pyggml.compat", "pyggml.families", "pyggml.tokenizer"}

#: Their names need packages that are not in every environment, or half a gigabyte, so they are read from the source.
UNIMPORTED = ("pyggml.ray.", "pyggml.integrations.")

_DIRECTIVE = re.compile(r"^\.\. (?:auto\w+|py:\w+):: (pyggml[\w.]*)", re.MULTILINE)
_SECTION = re.compile(r"^(?:Args|Attributes):\n((?:    .*\n|\n(?=    ))*)", re.MULTILINE)
_ENTRY = re.compile(r"^    \*{0,2}(\w+): ", re.MULTILINE)
# "As :meth:`generate`, for coroutines." and "Args and errors as :meth:`generate`."
_REFERENCE = re.compile(r"(?:^As |\bArg(?:ument)?s\b[^.]*? as (?:for )?):(?:meth|func):`(?:[^`]*<)?([\w.]+)>?`")


@dataclass(frozen=True)
class Callable:
    """A function, a method or a class with its docstrings.

    Attributes:
        name: its full name.
        parameters: the names of its parameters, without those for the package itself.
        docs: its docstring; for a class, also those of its constructor and its bases.
    """

    name: str
    parameters: tuple[str, ...]
    docs: tuple[str, ...]

    def undescribed(self) -> set[str]:
        """The parameters that neither a docstring nor one that it refers to describes."""
        missing = set(self.parameters)
        for doc in self.docs:
            sections = _SECTION.findall(f"{doc}\n")
            missing -= {name for section in sections for name in _ENTRY.findall(section)}
        for doc in self.docs:
            for other in map(self._referred, _REFERENCE.findall(doc)):
                missing -= set(other.parameters) - other.undescribed()
        return missing

    def _referred(self, target: str) -> Callable:
        """The function that a docstring names: of the same class, of a module around it, or by its full name."""
        scopes = self.name.split(".")
        for n in range(len(scopes) - 1, -1, -1):
            name = ".".join([*scopes[:n], target])
            with contextlib.suppress(AttributeError, ImportError):
                return _callable(name, value_of(name))
        raise LookupError(f"{self.name} refers to {target}, which does not exist")


def value_of(name: str) -> Any:
    """The value of a full name, whose module is imported if it has to be."""
    parts = name.split(".")
    value: Any = importlib.import_module(parts[0])
    for i, part in enumerate(parts[1:], 2):
        if inspect.ismodule(value) and not hasattr(value, part):
            importlib.import_module(".".join(parts[:i]))
        value = getattr(value, part)
    return value


def public_modules() -> list[str]:
    """The modules whose names are public, apart from the package itself."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    for_front_ends = {name for contract in contracts for name in contract.get("public_modules", ())}
    as_attributes = re.findall(
        r"^    from pyggml import (\w+) as", (ROOT / "pyggml" / "__init__.py").read_text(encoding="utf-8"), re.MULTILINE
    )
    return sorted({*for_front_ends, *(f"pyggml.{name}" for name in as_attributes), *_MORE_MODULES} - {"pyggml"})


@functools.cache
def public_names() -> dict[str, Any]:
    """Full name -> value, for each public name; None for one that is not imported."""
    found = {f"pyggml.{name}": getattr(pyggml, name) for name in pyggml.__all__}
    for module_name in public_modules():
        module = importlib.import_module(module_name)
        for name in getattr(module, "__all__", None) or _defined_in(module):
            found[f"{module_name}.{name}"] = None if f"{module_name}." in UNIMPORTED else getattr(module, name)
    return found | dict.fromkeys(_integrations())


def documented_names() -> list[str]:
    """The names that the pages of the API reference list, modules among them."""
    pages = sorted((ROOT / "docs" / "reference" / "api").glob("*.md"))
    return [name for page in pages for name in _DIRECTIVE.findall(page.read_text(encoding="utf-8"))]


def _defined_in(module: ModuleType) -> Iterator[str]:
    """The public names that a module defines, or imports for others to import; not the other names of one."""
    for node in ast.parse(inspect.getsource(module)).body:
        names: list[str] = []
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names = [node.name]
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and not isinstance(node.value, ast.Name):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.ImportFrom):
            names = [alias.name for alias in node.names if alias.asname == alias.name]
        yield from (name for name in names if not name.startswith("_"))


def callables() -> Iterator[Callable]:
    """Every public function and class, and the public methods of the classes."""
    seen: set[int] = set()
    for name, value in public_names().items():
        if value is None:
            yield from _unimported(name)
        elif id(value) not in seen and inspect.isroutine(value):
            seen.add(id(value))
            yield _callable(name, value)
        elif id(value) not in seen and inspect.isclass(value) and value.__module__.startswith("pyggml"):
            seen.add(id(value))
            yield _callable(name, value)
            yield from _methods(name, value)


def _methods(name: str, cls: type) -> Iterator[Callable]:
    for method in dir(cls):
        value = inspect.getattr_static(cls, method)
        value = getattr(value, "__func__", value)
        if inspect.isfunction(value) and not method.startswith("_") and value.__module__.startswith("pyggml"):
            yield _callable(f"{name}.{method}", value)


def _callable(name: str, value: Any) -> Callable:
    described = [value]
    if inspect.isclass(value):
        own = [each for each in value.__mro__ if each.__module__.startswith("pyggml")]
        described = [*own, *(vars(each)["__init__"] for each in own if "__init__" in vars(each))]
    docs = tuple(inspect.cleandoc(each.__doc__) for each in described if each.__doc__)
    return Callable(name, _parameters(value), docs)


def _parameters(value: Any) -> tuple[str, ...]:
    if inspect.isclass(value) and (issubclass(value, (int, str, BaseException)) or is_protocol(value)):
        return ()  # an enumeration, an error that only the package raises, or an interface
    names = inspect.signature(value).parameters
    return tuple(name for name in names if not name.startswith("_") and name not in ("self", "cls"))


def _integrations() -> Iterator[str]:
    """The public names of the modules for frameworks."""
    for path in (ROOT / "pyggml" / "integrations").glob("[!_]*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if (
                isinstance(node, ast.Assign)
                and isinstance(node.targets[0], ast.Name)
                and node.targets[0].id == "__all__"
            ):
                yield from (f"pyggml.integrations.{path.stem}.{name}" for name in ast.literal_eval(node.value))


def _source_of(name: str) -> str:
    """The source of the module that defines a name, which is not imported."""
    module, _, own = name.rpartition(".")
    if module == "pyggml.ray":
        file = f"ray/{importlib.import_module(module)._MODULES[own]}"
    else:
        file = module.removeprefix("pyggml.").replace(".", "/")
    return (ROOT / "pyggml" / f"{file}.py").read_text(encoding="utf-8")


def _unimported(name: str) -> Iterator[Callable]:
    source, own = _source_of(name), name.rpartition(".")[2]
    node = next(each for each in ast.parse(source).body if getattr(each, "name", None) == own)
    assert isinstance(node, (ast.FunctionDef, ast.ClassDef))
    constructor = next((each for each in node.body if getattr(each, "name", None) == "__init__"), None)
    if isinstance(node, ast.FunctionDef):
        parameters = _arguments(node)
    elif isinstance(constructor, ast.FunctionDef):
        parameters = _arguments(constructor)
    else:
        fields = [each.target for each in node.body if isinstance(each, ast.AnnAssign)]
        parameters = tuple(each.id for each in fields if isinstance(each, ast.Name) and not each.id.startswith("_"))
    yield Callable(name, parameters, (ast.get_docstring(node) or "",))


def _arguments(function: ast.FunctionDef) -> tuple[str, ...]:
    every = [*function.args.args, *function.args.kwonlyargs, *filter(None, [function.args.kwarg])]
    return tuple(each.arg for each in every if each.arg != "self")
