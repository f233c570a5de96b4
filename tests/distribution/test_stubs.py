"""The checked-in type stubs are those of the compiled module."""

from __future__ import annotations

import ast
from pathlib import Path

import make_families
import make_stubs
import pytest

from pyggml import ffi, lib


def stubbed_class(name: str) -> dict[str, ast.stmt]:
    """The members of a class of the stub file, by name."""
    module = ast.parse(make_stubs.STUB.read_text(encoding="utf-8"))
    found = next(node for node in module.body if isinstance(node, ast.ClassDef) and node.name == name)
    members: dict[str, ast.stmt] = {}
    for node in found.body:
        if isinstance(node, ast.FunctionDef):
            members[node.name] = node
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            members[node.target.id] = node
    return members


def test_stub_file_is_current() -> None:
    stale = "run `python tools/make_stubs.py` with the current build installed"
    assert make_stubs.STUB.read_text(encoding="utf-8") == make_stubs.stub_text(), stale


def test_stubs_name_exactly_what_the_module_has() -> None:
    assert stubbed_class("Lib").keys() == set(dir(lib))
    platform_flags = {name for name in dir(ffi) if name.startswith("RTLD_")}
    assert stubbed_class("FFI").keys() - platform_flags == {
        name for name in dir(ffi) if not name.startswith("_") and name not in platform_flags
    }


def test_types_of_some_functions() -> None:
    functions = stubbed_class("Lib")
    for name, expected in {
        "ggml_fp32_to_fp16": "(self, x: float, /) -> int",
        "ggml_is_quantized": "(self, type: int, /) -> bool",
        "llama_backend_init": "(self, /) -> None",
        "llama_vocab_get_text": "(self, vocab: CData, token: int, /) -> CData",
        "gguf_set_val_str": "(self, ctx: CData, key: _Bytes, val: _Bytes, /) -> None",
        "gguf_write_to_file_ptr": "(self, ctx: CData, file: _File, only_meta: bool, /) -> bool",
        "ggml_new_tensor": "(self, ctx: CData, type: int, n_dims: int, ne: _Array, /) -> CData",
        "ggml_format_name": "(self, tensor: CData, fmt: _Bytes, /, *args: CData) -> CData",
    }.items():
        node = functions[name]
        assert isinstance(node, ast.FunctionDef)
        assert node.returns is not None
        assert f"({ast.unparse(node.args)}) -> {ast.unparse(node.returns)}" == expected, name


def test_functions_take_what_the_stubs_say(tmp_path: Path) -> None:
    """One call for each kind of parameter, since no type checker knows what cffi accepts."""
    ctx = lib.gguf_init_empty()
    lib.gguf_set_val_str(ctx, b"key", ffi.new("char[]", b"value"))
    lib.gguf_set_arr_data(ctx, b"array", lib.GGUF_TYPE_INT8, b"\1\2", 2)
    assert ffi.string(lib.gguf_get_val_str(ctx, 0)) == b"value"
    assert bytes(ffi.buffer(ffi.cast("char *", lib.gguf_get_arr_data(ctx, 1)), 2)) == b"\1\2"
    with (tmp_path / "written.gguf").open("wb") as file:
        assert lib.gguf_write_to_file_ptr(ctx, file, True)
    assert (tmp_path / "written.gguf").read_bytes().startswith(ffi.string(lib.GGUF_MAGIC))
    lib.gguf_free(ctx)
    params = ffi.new("struct ggml_init_params *", {"mem_size": 1 << 20, "no_alloc": True})
    graph = lib.ggml_init(params[0])
    tensor = lib.ggml_new_tensor(graph, lib.GGML_TYPE_F32, 2, [3, 5])
    assert list(tensor.ne) == [3, 5, 1, 1]
    assert lib.ggml_nelements(tensor) == 15
    lib.ggml_format_name(tensor, b"layer %d", ffi.cast("int", 7))
    assert ffi.string(tensor.name) == b"layer 7"
    chosen = lib.ggml_build_forward_select(lib.ggml_new_graph(graph), [tensor], 1, 0)
    assert chosen == tensor
    lib.ggml_free(graph)


# --- what is written from the declarations of families ---------------------------------------------------------


def test_the_families_stub_file_is_current() -> None:
    assert make_families.STUB.read_text(encoding="utf-8") == make_families.stub_text(), "run `make stubs`"


@pytest.mark.slow_except("model-families.md")
@pytest.mark.parametrize("name", make_families.TABLES)
def test_the_tables_of_families_are_current(name: str) -> None:
    assert (make_families.DOCS / name).read_text(encoding="utf-8") == make_families.page(name), "run `make stubs`"
