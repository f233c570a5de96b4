"""The bindings are complete: each public name of the vendored headers is bound, or left out with a reason.

The headers are read as text (`tools/c_declarations.py`) and compared twice: with the compiled module, which
has to have the name, and with the text of `csrc/cdef/`, which has to give it the same type, since a C
compiler converts integers of different widths without a word.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import emit_bindings
import pytest
from c_declarations import Declarations, Param, parse
from support.paths import ROOT

from pyggml import ffi, lib

ENGINE = ROOT / "vendor" / "llama.cpp"
DEPRECATED = "deprecated upstream"


def upstream_header(name: str) -> Path:
    places = [ENGINE / "include" / name, ENGINE / "ggml" / "include" / name]
    return next(place for place in places if place.exists())


def parse_all(paths: list[Path]) -> Declarations:
    declared = Declarations()
    for path in paths:
        declared.update(parse(path.read_text(encoding="utf-8")))
    return declared


def left_out() -> dict[str, str]:
    lines = (emit_bindings.CDEF / "left_out.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split(": ", 1) for line in lines if line and not line.startswith("#"))


UPSTREAM = parse_all([upstream_header(name) for name in emit_bindings.HEADERS])
DECLARED = parse_all([emit_bindings.CDEF / name for name in emit_bindings.HEADERS])
LEFT_OUT = left_out()


def fields_of(name: str) -> set[str]:
    """The fields of a bound struct, those of an anonymous union or struct as if they were its own."""
    fields: set[str] = set()
    for field, info in ffi.typeof(name).fields:
        fields.update([field] if field else [inner for inner, _ in info.type.fields])
    return fields


def is_type(name: str) -> bool:
    try:
        ffi.typeof(name)
    except ffi.error:
        return False
    return True


def struct_name(name: str) -> str:
    """`struct x`, or `x` for a struct that only its typedef names."""
    return f"struct {name}" if is_type(f"struct {name}") else name


def unbound(header: Declarations, left_out: Mapping[str, str]) -> set[str]:
    """The names that `header` declares and that are neither in the compiled module nor left out."""
    missing = {name for name in [*header.functions, *header.constants] if not hasattr(lib, name)}
    for name, values in header.enums.items():
        missing.update([] if is_type(f"enum {name}") else [name])
        missing.update(value for value in values if not hasattr(lib, value))
    for name, fields in header.structs.items():
        if not is_type(struct_name(name)):
            missing.add(name)
        elif fields:  # cffi 2.1 aborts the process when asked for the fields of an opaque struct
            missing.update(f"{name}.{field}" for field in fields.keys() - fields_of(struct_name(name)))
    missing.update(name for name in header.typedefs if not is_type(name))
    return missing - left_out.keys()


def stale(header: Declarations, left_out: Mapping[str, str]) -> dict[str, str]:
    """The left-out names that should not be in the list (any more), with what is wrong about each."""
    wrong = {}
    for name, reason in left_out.items():
        function = header.functions.get(name)
        known = [*header.constants, *header.enums, *header.structs, *header.typedefs]
        if function is None and name not in known:
            wrong[name] = "no longer exists upstream"
        elif hasattr(lib, name):
            wrong[name] = "is bound"
        elif (reason == DEPRECATED) != (function is not None and function.deprecated):
            wrong[name] = "is deprecated without saying so, or says so and is not"
    return wrong


def differing(header: Declarations, declared: Declarations) -> dict[str, tuple[object, object]]:
    """Names that both declare with different types: name -> (upstream's type, ours)."""
    pairs: dict[str, tuple[object, object]] = {}
    for name in header.functions.keys() & declared.functions.keys():
        pairs[name] = (header.functions[name].signature, declared.functions[name].signature)
    for kind in ("enums", "structs", "typedefs"):
        ours, theirs = getattr(declared, kind), getattr(header, kind)
        pairs.update({f"{kind} {name}": (theirs[name], ours[name]) for name in theirs.keys() & ours.keys()})
    return {name: (theirs, ours) for name, (theirs, ours) in pairs.items() if theirs != ours}


# The bindings


def test_every_public_name_is_bound_or_left_out() -> None:
    assert unbound(UPSTREAM, LEFT_OUT) == set()


def test_left_out_list_is_current() -> None:
    assert stale(UPSTREAM, LEFT_OUT) == {}
    assert all(reason.strip() for reason in LEFT_OUT.values())


def test_every_declaration_has_the_type_of_upstream() -> None:
    assert differing(UPSTREAM, DECLARED) == {}


def test_nothing_is_declared_that_upstream_does_not_have() -> None:
    for kind in ("functions", "enums", "structs", "typedefs", "constants"):
        assert set(getattr(DECLARED, kind)) <= set(getattr(UPSTREAM, kind)), kind


@pytest.mark.parametrize("name", sorted(name for name, fields in UPSTREAM.structs.items() if fields))
def test_compiled_layout_of(name: str) -> None:
    """Using a struct makes cffi compare it with the compiler's layout, which importing does not."""
    assert ffi.sizeof(struct_name(name)) > 0
    assert fields_of(struct_name(name)) == set(UPSTREAM.structs[name])


def test_cdef_folder_holds_what_the_order_names() -> None:
    files = {path.name for path in emit_bindings.CDEF.glob("*.h")}
    assert files - {emit_bindings.CALLBACKS_H.name} == set(emit_bindings.HEADERS)


def test_portable_builds_redirect_every_function_of_the_cpu_backend() -> None:
    """There the CPU backend is loaded, not linked: one function forgotten, and the module does not import."""
    defines = [line for line in emit_bindings.preamble().splitlines() if line.startswith("#define ")]
    redirected = {line.removeprefix("#define ").partition("(")[0] for line in defines}
    header = upstream_header("ggml-cpu.h").read_text(encoding="utf-8")
    assert redirected == parse(header).functions.keys() - LEFT_OUT.keys()


# The reader of headers sees everything


def test_reader_finds_every_use_of_an_api_macro() -> None:
    """Counted by the macros alone, which nothing but a declaration of a function uses."""
    for name in emit_bindings.HEADERS:
        text = upstream_header(name).read_text(encoding="utf-8")
        code = "\n".join(line.partition("//")[0] for line in text.splitlines() if "#" not in line)
        uses = sum(code.count(f"{macro} ") for macro in ("GGML_API", "GGML_BACKEND_API", "LLAMA_API"))
        assert len(parse(text).functions) == uses > 0, name


NOVEL_HEADER = """
#ifdef __cplusplus
extern "C" {
#endif
#define GGML_MAX_DIMS 4
#define GGML_NOVEL_LIMIT 7 /* a constant */
#define GGML_NOVEL_MACRO(x) ((x) + 1)
enum ggml_status { GGML_STATUS_SUCCESS = 0, GGML_STATUS_NOVEL = 1 << 2 }; // one value is new
enum ggml_novel_kind { GGML_NOVEL_KIND_A };
struct ggml_init_params {
    size_t mem_size;
    union { int64_t novel_int; double novel_double; };
    void (*novel_hook)(struct ggml_tensor * t, int i);
    int32_t novel_array[GGML_MAX_DIMS];
};
struct ggml_novel;
typedef int32_t ggml_novel_t;
GGML_API void ggml_free(struct ggml_context * ctx);
GGML_API struct ggml_novel * ggml_novel_init(
    const char * name, // of the novel
    int sections[4], bool (*ask)(void * ud), ...);
GGML_DEPRECATED(GGML_API float ggml_novel_old(enum ggml_type), "use ggml_novel_init, instead");
float ggml_novel_plain(void);
#ifdef __cplusplus
}
#endif
"""


def test_every_kind_of_gap_is_seen() -> None:
    header = parse(NOVEL_HEADER)
    assert unbound(header, {"ggml_novel_plain": "for the test"}) == {
        "GGML_NOVEL_LIMIT",
        "GGML_STATUS_NOVEL",
        "ggml_novel_kind",
        "GGML_NOVEL_KIND_A",
        "ggml_init_params.novel_int",
        "ggml_init_params.novel_double",
        "ggml_init_params.novel_hook",
        "ggml_init_params.novel_array",
        "ggml_novel",
        "ggml_novel_t",
        "ggml_novel_init",
        "ggml_novel_old",
    }


def test_every_kind_of_stale_reason_is_seen() -> None:
    header = parse(NOVEL_HEADER)
    assert stale(header, {"ggml_novel_old": DEPRECATED, "ggml_novel_init": "for the test"}) == {}
    wrong = {
        "ggml_gone": DEPRECATED,
        "ggml_free": "for the test",
        "ggml_novel_old": "for the test",
        "ggml_novel_plain": DEPRECATED,
    }
    assert stale(header, wrong).keys() == wrong.keys()


def test_every_kind_of_differing_type_is_seen() -> None:
    header = parse(NOVEL_HEADER)
    changed = parse(
        NOVEL_HEADER.replace("void ggml_free(struct", "int ggml_free(struct")
        .replace("int sections[4]", "int64_t * sections")
        .replace("1 << 2 }", "1, GGML_STATUS_MORE }")
        .replace("typedef int32_t", "typedef int64_t")
        .replace("size_t mem_size", "uint32_t mem_size")
    )
    assert differing(header, header) == {}
    assert differing(header, changed).keys() == {
        "ggml_free",
        "ggml_novel_init",
        "enums ggml_status",
        "typedefs ggml_novel_t",
        "structs ggml_init_params",
    }


def test_reader_reads_types_and_names() -> None:
    header = parse(NOVEL_HEADER)
    novel = header.functions["ggml_novel_init"]
    assert novel.signature == "struct ggml_novel * (const char *, int *, bool (*)(void *), ...)"
    assert [param.name for param in novel.params] == ["name", "sections", "ask"]
    assert header.functions["ggml_novel_old"].params == (Param("enum ggml_type", ""),)
    assert header.structs["ggml_init_params"]["novel_hook"] == "void (*)(struct ggml_tensor *, int)"
    assert header.structs["ggml_init_params"]["novel_array"] == "int32_t [ ... ]"


def test_reader_refuses_what_it_does_not_know() -> None:
    for text in ("int a, b;", "struct s { int a, b; };", "union u { int a; };", "void f(int a;"):
        with pytest.raises(ValueError, match=r"unsupported|closed|more than one"):
            parse(text)


@pytest.mark.slow
def test_plain_declarations_of_our_own_header() -> None:
    header = '#ifndef X_H\n#include <stdint.h>\n#ifdef __cplusplus\nextern "C" {\n#endif\nint f(void);\n'
    header += "#ifdef __cplusplus\n}\n#endif  // C\n#endif\n"
    assert emit_bindings.plain_declarations(header).split() == ["int", "f(void);"]
