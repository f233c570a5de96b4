"""Write `pyggml/_pyggml.pyi`, the type stubs of the compiled module.

Run it after a change to `csrc/cdef/` or `csrc/pyggml.h`, with the new module installed:

    python tools/make_stubs.py

The types come from the compiled module itself, the parameter names and `const` from the declarations, and the
part about cffi from `tools/_pyggml.pyi.in`. A test compares the result with the file in the repository.
"""

from __future__ import annotations

import keyword
import re
import sys
from pathlib import Path
from typing import Any

from pyggml._pyggml import ffi, lib

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "csrc"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import emit_bindings
from c_declarations import Function, parse

TOOLS = Path(__file__).resolve().parent
ROOT = TOOLS.parent
TEMPLATE = TOOLS / "_pyggml.pyi.in"
STUB = ROOT / "pyggml" / "_pyggml.pyi"
LINE_LENGTH = 110

#: Where C only reads bytes, Python may pass `bytes`; where it only reads numbers or pointers, a sequence.
READ_BYTES = ("const char *", "const void *", "const uint8_t *", "const int8_t *")


def python_result(ctype: Any) -> str:
    """Return the Python type for the result type of a C function."""
    if ctype.kind == "void":
        return "None"
    return python_number(ctype) or "CData"


def python_number(ctype: Any) -> str | None:
    """Return the Python type of a C number, `None` for anything else."""
    if ctype.kind == "enum":
        return "int"
    if ctype.kind != "primitive":
        return None
    if ctype.cname in ("float", "double", "_Bool", "char"):
        return {"float": "float", "double": "float", "_Bool": "bool", "char": "bytes"}[str(ctype.cname)]
    return "int"


def python_param(ctype: Any, declared: str) -> str:
    """Return the Python type that a parameter takes; `declared` has the `const` that `ctype` lacks."""
    if declared == "FILE *":
        return "_File"
    if declared in READ_BYTES:
        return "_Bytes"
    if ctype.kind == "pointer" and _reads_array(ctype.item, declared):
        return "_Array"
    return python_number(ctype) or "CData"


def _reads_array(item: Any, declared: str) -> bool:
    """Return True if Python may pass a list for an array: numbers or pointers that C only reads.

    Upstream leaves out the `const` for arrays of handles (tensors, backends).
    """
    if item.kind == "pointer":
        return declared.startswith("const ") or item.item.kind == "struct"
    return declared.startswith("const ") and python_number(item) is not None


def python_name(name: str, index: int) -> str:
    if not name:
        return f"arg{index}"
    return f"{name}_" if keyword.iskeyword(name) or name == "self" else name


def function_stub(name: str, function: Function) -> str:
    """Return the method that stands for a C function; cffi takes positional arguments only."""
    ctype = ffi.typeof(getattr(lib, name))
    params = ["self"]
    for index, (param, arg) in enumerate(zip(function.params, ctype.args, strict=True)):
        params.append(f"{python_name(param.name, index)}: {python_param(arg, param.type)}")
    params.append("/")
    if function.variadic:
        params.append("*args: CData")
    return wrapped_def(name, params, python_result(ctype.result))


def wrapped_def(name: str, params: list[str], result: str) -> str:
    """Return a method's line, wrapped as the formatter would wrap it."""
    tail = f") -> {result}: ..."
    line = f"    def {name}({', '.join(params)}{tail}"
    if len(line) <= LINE_LENGTH:
        return line
    inner = f"        {', '.join(params)}"
    if len(inner) <= LINE_LENGTH:
        return f"    def {name}(\n{inner}\n    {tail}"
    inner = "".join(f"        {param},\n" for param in params)
    return f"    def {name}(\n{inner}    {tail}"


def constant_type(name: str) -> str:
    return "int" if isinstance(getattr(lib, name), int) else "CData"


def header_stubs(title: str, text: str) -> list[str]:
    """Return the lines for everything that one file of declarations adds to `lib`."""
    declared = parse(text)
    constants = [*declared.constants, *(value for values in declared.enums.values() for value in values)]
    lines = [f"    # {title}"]
    lines += [f"    {name}: {constant_type(name)}" for name in constants]
    lines += [function_stub(name, function) for name, function in declared.functions.items()]
    return lines


def callback_stubs() -> list[str]:
    """Return the lines for the functions that Python defines and C calls, which are pointers in `lib`."""
    if not emit_bindings.CALLBACKS_H.exists():
        return []
    text = emit_bindings.CALLBACKS_H.read_text(encoding="utf-8")
    declared = parse(re.sub(r'extern\s+"Python"\s*\{(.*)\}', r"\1", text, flags=re.DOTALL))
    return [f"    # {emit_bindings.CALLBACKS_H.name}", *(f"    {name}: CData" for name in declared.functions)]


def stub_text() -> str:
    """Return the whole text of the stub file."""
    lines: list[str] = []
    for name in emit_bindings.HEADERS:
        lines += header_stubs(name, (emit_bindings.CDEF / name).read_text(encoding="utf-8"))
    ours = emit_bindings.PYGGML_H.read_text(encoding="utf-8")
    lines += header_stubs("pyggml.h", emit_bindings.plain_declarations(ours))
    lines += callback_stubs()
    return TEMPLATE.read_text(encoding="utf-8").replace("@members@", "\n".join(lines))


def main() -> None:
    STUB.write_text(stub_text(), encoding="utf-8")
    print(f"{STUB.relative_to(ROOT)}: {len(dir(lib))} names")


if __name__ == "__main__":
    main()
