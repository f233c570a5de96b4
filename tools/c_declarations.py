"""Read the declarations of a C header: functions, enums, structs, typedefs and constants.

It reads both sides of our bindings, the vendored headers and `csrc/cdef/`, so that the completeness test can
compare them and the stub generator can learn parameter names. It is not a full C parser: it knows the plain style
of those headers (one declarator per declaration, no K&R) and raises on anything it does not understand.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

#: Words that change linkage, visibility or aliasing rules, but neither a name nor a type.
_DROPPED_WORDS = frozenset(
    {"GGML_API", "GGML_BACKEND_API", "LLAMA_API", "GGML_NORETURN", "GGML_RESTRICT", "extern", "restrict"}
)
_DEPRECATED = frozenset({"GGML_DEPRECATED", "DEPRECATED"})
_TYPE_WORDS = frozenset(
    {"void", "bool", "char", "short", "int", "long", "float", "double", "signed", "unsigned", "const"}
    | {"struct", "enum", "union"}
)
_CONSTANT_PREFIXES = ("GGML_", "GGUF_", "LLAMA_")
_LITERAL = re.compile(r"\(?-?(0[xX][0-9a-fA-F]+|\d+|\"[^\"]*\")[uUlL]*\)?|\.\.\.")
_TOKEN = re.compile(r"[A-Za-z_]\w*|\d\w*|\.\.\.|\"(?:[^\"\\]|\\.)*\"|[^\s\w]")


@dataclass(frozen=True)
class Param:
    """One parameter; `name` is empty where the header gives none."""

    type: str
    name: str


@dataclass(frozen=True)
class Function:
    result: str
    params: tuple[Param, ...]
    variadic: bool = False
    deprecated: bool = False

    @property
    def signature(self) -> str:
        """The types, without the names of the parameters."""
        types = [param.type for param in self.params] + ["..."] * self.variadic
        return f"{self.result} ({', '.join(types)})"


@dataclass
class Declarations:
    """Declarations of a header. Types have one space between tokens; a length from a macro is `...`."""

    functions: dict[str, Function] = field(default_factory=dict)
    enums: dict[str, tuple[str, ...]] = field(default_factory=dict)
    #: Fields by name; empty for a struct that is declared but never defined.
    structs: dict[str, dict[str, str]] = field(default_factory=dict)
    typedefs: dict[str, str] = field(default_factory=dict)
    constants: list[str] = field(default_factory=list)

    def update(self, other: Declarations) -> None:
        """Add what another header declares; a definition wins over a forward declaration."""
        self.functions.update(other.functions)
        self.enums.update(other.enums)
        self.typedefs.update(other.typedefs)
        self.constants.extend(name for name in other.constants if name not in self.constants)
        for name, fields in other.structs.items():
            self.structs[name] = fields or self.structs.get(name, {})


def parse(text: str) -> Declarations:
    """Return what the C source `text` declares. Raises `ValueError` on a declaration it cannot read."""
    found = Declarations()
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL).replace("\\\n", " ")
    lines = list(_lines_for_c(text))
    _read_macros(lines, found)
    code = "\n".join(line for line in lines if not line.startswith("#"))
    for statement in _split(_TOKEN.findall(code), ";"):
        _read_statement(statement, found)
    return found


def _lines_for_c(text: str) -> Iterator[str]:
    """Yield the lines that a C compiler sees: without the branches for C++ and CUDA."""
    skipped = [False]
    for raw in text.splitlines():
        line = re.sub(r"^\s*#\s*", "#", raw)
        if line.startswith("#if"):
            skipped.append(bool(re.match(r"#ifdef\s+(__cplusplus|__CUDACC__)\b", line)))
        elif line.startswith(("#else", "#elif")):
            skipped[-1] = False
        elif line.startswith("#endif"):
            skipped.pop()
        elif not any(skipped):
            yield line


def _read_macros(lines: list[str], found: Declarations) -> None:
    """Collect the macros that stand for a number or a string, directly or through another such macro."""
    for line in lines:
        match = re.match(r"#define\s+(\w+)\s+(.+?)\s*$", line)
        if not match or not match[1].startswith(_CONSTANT_PREFIXES) or match[1] in found.constants:
            continue
        if _LITERAL.fullmatch(match[2]) or match[2] in found.constants:
            found.constants.append(match[1])


def _split(tokens: list[str], separator: str) -> Iterator[list[str]]:
    """Yield the runs of tokens between separators outside all brackets."""
    depth, run = 0, list[str]()
    for token in tokens:
        depth += (token in "({[") - (token in ")}]")
        if token == separator and depth == 0:
            yield run
            run = []
        else:
            run.append(token)
    if depth != 0:
        raise ValueError(f"a bracket is never closed: {' '.join(run)}")
    if run:
        yield run


def _closing(tokens: list[str], opening: int) -> int:
    """Return the index of the bracket that closes the one at `opening`."""
    depth = 0
    for i in range(opening, len(tokens)):
        depth += (tokens[i] in "({[") - (tokens[i] in ")}]")
        if depth == 0:
            return i
    raise ValueError(f"a bracket is never closed: {' '.join(tokens)}")


def _read_statement(tokens: list[str], found: Declarations) -> None:
    """Store one declaration, given without its semicolon, under its kind."""
    deprecated = not _DEPRECATED.isdisjoint(tokens)
    tokens = _without_attributes(tokens)
    is_typedef = bool(tokens) and tokens[0] == "typedef"
    tokens = tokens[is_typedef:]
    if not tokens:
        return
    if "{" in tokens:
        _read_definition(tokens, found)
    elif is_typedef:
        declared, name = _declarator(tokens)
        found.typedefs[name] = declared
    elif tokens[0] == "static":
        found.constants.append(_declarator(next(_split(tokens, "=")))[1])
    elif "(" in tokens:
        name, function = _function(tokens, deprecated)
        found.functions[name] = function
    elif len(tokens) == 2 and tokens[0] == "struct":
        found.structs.setdefault(tokens[1], {})
    else:
        raise ValueError(f"unsupported declaration: {' '.join(tokens)}")


def _without_attributes(tokens: list[str]) -> list[str]:
    """Return the bare declaration: without DEPRECATED(...), export and format attributes."""
    kept: list[str] = []
    i = 0
    while i < len(tokens):
        if tokens[i] in _DEPRECATED:
            end = _closing(tokens, i + 1)
            return _without_attributes(next(_split(tokens[i + 2 : end], ",")))
        if tokens[i] == "GGML_ATTRIBUTE_FORMAT":
            i = _closing(tokens, i + 1)
        elif tokens[i] not in _DROPPED_WORDS:
            kept.append(tokens[i])
        i += 1
    return kept


def _read_definition(tokens: list[str], found: Declarations) -> None:
    """Read an enum or struct with a body: `enum x {...}`, `struct x {...}`, `typedef struct {...} x`."""
    start = tokens.index("{")
    end = _closing(tokens, start)
    body = tokens[start + 1 : end]
    name = tokens[1] if start == 2 else "".join(tokens[end + 1 :])
    if tokens[0] == "enum":
        values = (value[0] for value in _split(body, ",") if value != ["..."])
        # An anonymous enum only declares constants; its values are stored under the first of them.
        names = tuple(values)
        found.enums[name or names[0]] = names
    elif tokens[0] == "struct":
        found.structs[name] = dict(_fields(body))
    else:
        raise ValueError(f"unsupported definition: {' '.join(tokens[:start])}")
    for alias in tokens[end + 1 :]:
        found.typedefs[alias] = " ".join(tokens[:start])


def _fields(body: list[str]) -> Iterator[tuple[str, str]]:
    """Yield (name, type) of each field; fields of an anonymous union count as the struct's own."""
    for tokens in _split(body, ";"):
        if tokens == ["..."]:
            continue
        if "{" in tokens:
            end = _closing(tokens, tokens.index("{"))
            inner = dict(_fields(tokens[tokens.index("{") + 1 : end]))
            if end == len(tokens) - 1:
                yield from inner.items()
            else:
                members = "; ".join(f"{kind} {name}" for name, kind in inner.items())
                yield tokens[-1], f"{tokens[0]} {{ {members} }}"
            continue
        if len(list(_split(tokens, ","))) > 1:
            raise ValueError(f"more than one field in a declaration: {' '.join(tokens)}")
        declared, name = _declarator(tokens)
        yield name, declared


def _function(tokens: list[str], deprecated: bool) -> tuple[str, Function]:
    start = tokens.index("(")
    name = tokens[start - 1]
    groups = [group for group in _split(tokens[start + 1 : -1], ",") if group != ["void"]]
    variadic = ["..."] in groups
    params = tuple(Param(*_declarator(group, decays=True)) for group in groups if group != ["..."])
    return name, Function(" ".join(tokens[: start - 1]), params, variadic, deprecated)


def _declarator(tokens: list[str], decays: bool = False) -> tuple[str, str]:
    """Split `const char * name`, `int64_t ne[4]` or `void (*name)(int)` into its type and its name.

    Set `decays` for parameters, where an array is a pointer.
    """
    if ("(", "*") in itertools.pairwise(tokens):
        return _function_pointer(tokens)
    base = tokens[: tokens.index("[")] if "[" in tokens else tokens
    named = len(base) > 1 and base[-1].isidentifier() and base[-1] not in _TYPE_WORDS
    named = named and not (len(base) == 2 and base[0] in ("struct", "enum", "union"))
    kind, name = (base[:-1], base[-1]) if named else (base, "")
    length = tokens[len(base) :]
    if length and decays:
        length = ["*"]
    elif any(token.isidentifier() for token in length):
        length = ["[", "...", "]"]
    return " ".join([*kind, *length]), name


def _function_pointer(tokens: list[str]) -> tuple[str, str]:
    """Split `result (*name)(params)`; the parameters' names are not part of the type."""
    start = tokens.index("(")
    if tokens[start + 1] != "*" or tokens[start + 3 : start + 5] != [")", "("]:
        raise ValueError(f"unsupported function pointer: {' '.join(tokens)}")
    name = tokens[start + 2]
    _, function = _function([*tokens[:start], name, *tokens[start + 4 :]], deprecated=False)
    return function.signature.replace(" (", " (*)(", 1), name
