"""Compile with zig, for another system than this one, as if it were gcc or clang.

    python tools/zig_compiler.py (cc|c++|ar|ranlib) TARGET ARGUMENT...

zig (the Python package ziglang) carries clang, its linker, and the headers and symbols of every version of glibc, of
musl, of Windows and of macOS: TARGET is one of its triples, such as x86_64-linux-gnu.2.28. It differs from the
compilers that CMake and llama.cpp know in a few arguments, which are translated here.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

TOOLS = ("cc", "c++", "ar", "ranlib")

#: zig's own operators new and delete are weak symbols that its linker exports. Another library of the process must
#: not use ours, nor we theirs: they count the memory of chat templates.
HIDDEN_SYMBOLS = "{ local: _Zn[aw]*; _Zd[al]Pv*; __wrap_*; };\n"


def main() -> None:
    """Run zig in the place of this process."""
    if len(sys.argv) < 3 or sys.argv[1] not in TOOLS:
        sys.exit(f"usage: {sys.argv[0]} ({'|'.join(TOOLS)}) TARGET ARGUMENT...")
    tool, target, *arguments = sys.argv[1:]
    if tool in ("cc", "c++"):
        arguments = ["-target", target, *translated(arguments, target)]
    zig = zig_path()
    os.execv(zig, [str(zig), tool, *arguments])


def zig_path() -> Path:
    """Return zig's executable in the package ziglang."""
    import ziglang

    (folder,) = ziglang.__path__
    return Path(folder, "zig")


def translated(arguments: Sequence[str], target: str) -> list[str]:
    """Return a compiler's arguments as zig takes them."""
    result = list(_translate(arguments, target))
    # Unoptimised code would be checked for undefined behaviour, and end the process.
    result.append("-fno-sanitize=undefined")
    if "-shared" in arguments and "linux" in target:
        result.append(f"-Wl,--version-script={_hidden_symbols()}")
    return result


def _translate(arguments: Sequence[str], target: str) -> Iterator[str]:
    for argument in arguments:
        if argument.startswith("-Wl,"):
            options = [option for option in argument.split(",")[1:] if option not in ("--exclude-libs", "ALL")]
            if options:
                yield ",".join(["-Wl", *options])
        elif argument.startswith("-march=armv") and target.startswith("aarch64"):
            yield _arm_processor(argument)
        else:
            yield argument


def _arm_processor(argument: str) -> str:
    """Return the processor with the architecture and extensions of `-march`, as zig names it: generic+v8_2a+dotprod."""
    version, *extensions = argument.removeprefix("-march=arm").split("+")
    # What comes with the architecture for gcc and clang, and fp16, have other names in LLVM.
    features = [re.sub(r"[.-]", "_", version).replace("_a", "a")]
    features += ["fullfp16" if extension == "fp16" else extension for extension in extensions]
    return "+".join(["-mcpu=generic", *features])


def _hidden_symbols() -> Path:
    """Return a file for the linker with HIDDEN_SYMBOLS, next to this environment's zig."""
    path = Path(sys.prefix, "zig-hidden-symbols.map")
    if not path.exists():
        unfinished = path.with_suffix(f".{os.getpid()}")
        unfinished.write_text(HIDDEN_SYMBOLS, encoding="utf-8")
        unfinished.replace(path)
    return path


if __name__ == "__main__":
    main()
