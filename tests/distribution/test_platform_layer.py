"""Differences between operating systems are in one place, in C++ and in Python."""

from __future__ import annotations

import ast
import re

import cross_check
import pytest
from support.paths import ROOT

from pyggml import InvalidParameterError
from pyggml._core.platforms import require_inherited_sockets

SYSTEM_HEADER = re.compile(
    r"^\s*#\s*include <((?:sys|netinet|arpa|linux|mach|pthread)/[\w./]+|"
    r"(?:unistd|fcntl|pthread|sched|signal|dlfcn|poll|netdb|windows|winsock2|io|termios)\.h)>",
    re.MULTILINE,
)
#: Compiled together with the engine's own sources, whose functions and types of the system it takes, and assembler of
#: Linux on x86-64.
EXCEPTIONS = {
    "kernels/backend/upstream_ggml_cpu.c": {"pthread.h", "sched.h"},
    "kernels/simd/amx.hpp": {"sys/syscall.h", "unistd.h"},
}


def test_only_the_platform_layer_includes_headers_of_a_system() -> None:
    csrc = ROOT / "csrc"
    found = {
        path.relative_to(csrc).as_posix(): set(SYSTEM_HEADER.findall(path.read_text(encoding="utf-8")))
        for path in csrc.rglob("*")
        if path.suffix in (".c", ".cpp", ".h", ".hpp") and path.relative_to(csrc).parts[0] not in ("platform", "tests")
    }
    assert {name: headers for name, headers in found.items() if headers} == EXCEPTIONS


def test_the_platform_layer_is_compiled_for_each_system() -> None:
    layer = {path.name for path in (ROOT / "csrc" / "platform").glob("*.cpp")}
    compiled = {
        path.name
        for target in cross_check.TARGETS.values()
        for path, _ in cross_check.sources_of(target)
        if path.parent.name == "platform"
    }
    assert compiled == layer


@pytest.mark.parametrize("triple", cross_check.TARGETS)
def test_a_target_has_one_implementation_of_each_function(triple: str) -> None:
    files = {path.resolve() for path, _ in cross_check.sources_of(cross_check.TARGETS[triple])}
    defining = [path.name for path in files if re.search(r"^MappedFile::MappedFile\(", path.read_text(), re.MULTILINE)]
    assert len(defining) == 1
    naming = [path.name for path in files if re.search(r"^void name_this_thread\(", path.read_text(), re.MULTILINE)]
    assert len(naming) == 1


def test_a_feature_that_passes_sockets_names_windows() -> None:
    require_inherited_sockets("isolate=True", "linux")
    with pytest.raises(InvalidParameterError, match=r"^isolate=True does not work on Windows: .* such as in WSL\.$"):
        require_inherited_sockets("isolate=True", "win32")


POSIX_MODULES = {"fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty"}


def imported_at_once(source: str) -> set[str]:
    """The modules that the top level of a source imports on Windows: statements below a condition do not count."""
    statements = ast.parse(source).body
    plain = {alias.name for each in statements if isinstance(each, ast.Import) for alias in each.names}
    return plain | {each.module for each in statements if isinstance(each, ast.ImportFrom) and each.module}


def test_modules_import_nothing_that_windows_lacks_but_the_editor_of_chats() -> None:
    package = ROOT / "pyggml"
    found = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if imported_at_once(path.read_text(encoding="utf-8")) & POSIX_MODULES
    }
    assert found == {"cli/chat/editor.py"}  # docs/reference/platforms.md names it


def test_only_one_module_registers_functions_for_forks() -> None:
    """Windows has no os.register_at_fork."""
    package = ROOT / "pyggml"
    found = {path.name for path in package.rglob("*.py") if "register_at_fork" in path.read_text(encoding="utf-8")}
    assert found == {"platforms.py"}
