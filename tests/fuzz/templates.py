"""Makes up chat templates: every statement, operator, filter, test and function of upstream's interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

NUMBERS = (
    "0", "1", "2", "-1", "3", "7", "100", "1000", "65536", "100001", "2147483647", "-2147483648", "4294967296",
    "9223372036854775807", "(-9223372036854775807 - 1)", "99999999999999999999", "0.5", "-0.0", "1.5", "1e3",
    "1000000.0",
)  # fmt: skip
TEXTS = (
    "''", "'a'", "'ab'", "'aaaa'", "' x '", "'a b c'", "'{}'", "'%Y'", "'%'", "'\\n'", "'a\\nb'", "'ä€😀'",
    "'0'", "'-1'", "'role'", "'content'", "'divisibleby'", "'equalto'", "'items'", "'<|im_end|>'", "'\\''",
    "'{\"a\": 1}'", "'none'",
)  # fmt: skip
NAMES = (
    "messages", "tools", "x", "y", "z", "ns", "loop", "bos_token", "eos_token", "add_generation_prompt", "true",
    "false", "none", "undefined_name", "range", "namespace", "f", "caller", "m", "enable_thinking", "kwargs",
    "item",
)  # fmt: skip
MEMBERS = (
    "role", "content", "x", "y", "items", "keys", "values", "get", "append", "pop", "upper", "index", "index0",
    "first", "last", "length", "previtem", "nextitem", "name", "function", "tool_calls", "arguments",
    "reasoning_content", "split", "strip", "startswith", "0", "1",
)  # fmt: skip
FILTERS = (
    "abs", "append", "capitalize", "count", "d", "default", "dictsort", "e", "endswith", "escape", "first",
    "float", "format", "get", "indent", "int", "items", "join", "keys", "last", "length", "list", "lower",
    "lstrip", "map", "max", "min", "pop", "reject", "rejectattr", "replace", "reverse", "rsplit", "rstrip",
    "safe", "select", "selectattr", "slice", "sort", "split", "startswith", "string", "strip", "sum", "title",
    "tojson", "trim", "truncate", "unique", "upper", "values", "wordcount", "xyz",
)  # fmt: skip
TESTS = (
    "boolean", "callable", "odd", "even", "false", "true", "divisibleby", "string", "integer", "float",
    "number", "iterable", "sequence", "mapping", "lower", "upper", "none", "defined", "undefined", "eq",
    "equalto", "ge", "gt", "greaterthan", "lt", "lessthan", "ne", "in", "test", "sameas", "escaped", "filter",
    "xyz",
)  # fmt: skip
FUNCTIONS = ("range", "namespace", "dict", "strftime_now", "raise_exception", "tojson", "f", "caller", "xyz")
KEYWORDS = ("attribute", "default", "boolean", "reverse", "by", "indent", "width", "first", "chars", "base", "d", "x")
OPERATORS = ("+", "-", "*", "/", "%", "~", "==", "!=", "<", ">", "<=", ">=", "in", "not in", "and", "or", "//", "**")

Choice = TypeVar("Choice")


class Writer:
    """Writes templates, from nothing but random numbers."""

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random

    def statement(self, depth: int = 3) -> str:
        kinds: list[Callable[[int], str]] = [self._output, self._output, self._set, self._text]
        if depth > 0:
            kinds += [self._for, self._for, self._if, self._macro, self._call, self._filter_block, self._set_block]
            kinds += [self._grow, self._grow, self._generation]
        return self._one(kinds)(depth - 1)

    def expression(self, depth: int = 3) -> str:
        atoms: list[Callable[[int], str]] = [self._number, self._string, self._name, self._name]
        if depth <= 0:
            return self._one(atoms)(0)
        kinds = [*atoms, self._filter, self._filter, self._filter, self._test, self._binary, self._binary, self._member]
        kinds += [self._index, self._slice, self._function, self._method, self._list, self._tuple, self._object]
        kinds += [self._ternary, self._unary]
        return self._one(kinds)(depth - 1)

    def _block(self, depth: int) -> str:
        return "".join(self.statement(depth) for _ in range(self._random.integers(0, 3)))

    def _output(self, depth: int) -> str:
        return f"{{{{{self._one(['', '', '-'])} {self.expression(depth + 1)} {self._one(['', '', '-'])}}}}}"

    def _text(self, _depth: int) -> str:
        return self._one(["text", "\n", "{# note #}", "<|im_start|>", "", "ä", " {%- set x = 1 -%} "])

    def _set(self, depth: int) -> str:
        target = self._one(["x", "y", "z", "ns.x", "ns.y", "ns.x", "x, y", "loop", "messages", "ns", "x[0]"])
        return f"{{% set {target} = {self.expression(depth + 1)} %}}"

    def _grow(self, _depth: int) -> str:
        """Return a loop that may take all time or memory."""
        step = self._one([
            "ns.x ~ ns.x", "[ns.x]", "[ns.x, ns.x]", "(ns.x, ns.x)", "(ns.x, 1)", "{'a': ns.x, 'b': ns.x}",
            "ns.x + ns.x", "ns.x|string", "ns.x|tojson", "ns.x|list", "{ns.x: ns.x}", "[ns.x, ns]", "ns.x.append(ns.x)",
            "ns.x.upper", "ns.x|string|replace('a', 'bb')", "(ns.x|string).split('a')", "ns.x * 2",
            "ns.x|join(ns.x|string)",
            "ns.x|sort", "dict(ns.x)", "ns.x|reverse", "ns.x|dictsort", "ns.x == ns.x", "ns.x in [ns.x]",
            "[ns.x|string]|join * 3",
        ])  # fmt: skip
        start = self._one(["'a'", "[]", "[1]", "(1, 2)", "{}", "messages", "['a' * 1000]|join", "ns", "range(1000)"])
        n = self._one(["3", "30", "300", "3000", "100000"])
        after = self._one(["", "{{ ns.x }}", "{{ ns.x|tojson }}", "{{ ns.x == ns.x }}", "{{ {ns.x: 1} }}"])
        start = f"{{% set ns = namespace() %}}{{% set ns.x = {start} %}}"
        return f"{start}{{% for i in range({n}) %}}{{% set ns.x = {step} %}}{{% endfor %}}{after}"

    def _set_block(self, depth: int) -> str:
        return f"{{% set {self._one(['x', 'y', 'ns.x'])} %}}{self._block(depth)}{{% endset %}}"

    def _generation(self, depth: int) -> str:
        return f"{{% generation %}}{self._block(depth)}{{% endgeneration %}}"

    def _for(self, depth: int) -> str:
        target = self._one(["m", "i", "x", "k, v", "loop", "x, y, z"])
        over = self._one(
            [self.expression(depth + 1), "messages", "range(1000)", "messages[0].items()", "ns.x", "tools"]
        )
        condition = self._one(["", "", f" if {self.expression(depth)}"])
        body = self._block(depth) + self._one(["", "", "{% break %}", "{% continue %}", "{{ loop.index }}"])
        otherwise = self._one(["", f"{{% else %}}{self._block(depth)}"])
        return f"{{% for {target} in {over}{condition} %}}{body}{otherwise}{{% endfor %}}"

    def _if(self, depth: int) -> str:
        branches = "".join(
            f"{{% elif {self.expression(depth)} %}}{self._block(depth)}" for _ in range(self._random.integers(0, 2))
        )
        begin = f"{{% if {self.expression(depth)} %}}{self._block(depth)}"
        return f"{begin}{branches}{{% else %}}{self._block(depth)}{{% endif %}}"

    def _macro(self, depth: int) -> str:
        arguments = self._one(["", "x", "x, y=1", "x=[]", f"x={self.expression(depth)}"])
        again = self._one(["", "", "{{ f(x) }}", "{{ f([x]) }}", "{{ caller() }}"])
        use = self._one(["{{ f() }}", "{{ f(1) }}", "{{ f(x=f) }}", "{{ f(1, 2, 3) }}", ""])
        return f"{{% macro f({arguments}) %}}{self._block(depth)}{again}{{% endmacro %}}{use}"

    def _call(self, depth: int) -> str:
        return f"{{% call{self._one(['', '(x)'])} f({self._arguments(depth)}) %}}{self._block(depth)}{{% endcall %}}"

    def _filter_block(self, depth: int) -> str:
        return f"{{% filter {self._one(FILTERS)}{self._given(depth)} %}}{self._block(depth)}{{% endfilter %}}"

    def _number(self, _depth: int) -> str:
        return self._one(NUMBERS)

    def _string(self, _depth: int) -> str:
        return self._one(TEXTS)

    def _name(self, _depth: int) -> str:
        return self._one(NAMES)

    def _filter(self, depth: int) -> str:
        return f"({self.expression(depth)})|{self._one(FILTERS)}{self._given(depth)}"

    def _test(self, depth: int) -> str:
        is_ = self._one(["is", "is", "is not"])
        return f"({self.expression(depth)} {is_} {self._one(TESTS)}{self._given(depth)})"

    def _binary(self, depth: int) -> str:
        return f"({self.expression(depth)} {self._one(OPERATORS)} {self.expression(depth)})"

    def _member(self, depth: int) -> str:
        return f"{self._holder(depth)}.{self._one(MEMBERS)}"

    def _method(self, depth: int) -> str:
        return f"{self._holder(depth)}.{self._one(FILTERS)}({self._arguments(depth)})"

    def _index(self, depth: int) -> str:
        return f"{self._holder(depth)}[{self.expression(depth)}]"

    def _slice(self, depth: int) -> str:
        bounds = [self._one(["", self.expression(depth - 1)]) for _ in range(3)]
        return f"{self._holder(depth)}[{':'.join(bounds)}]"

    def _function(self, depth: int) -> str:
        return f"{self._one(FUNCTIONS)}({self._arguments(depth)})"

    def _list(self, depth: int) -> str:
        return f"[{', '.join(self._several(depth))}]"

    def _tuple(self, depth: int) -> str:
        return f"({', '.join([self.expression(depth), *self._several(depth)])})"

    def _object(self, depth: int) -> str:
        return f"{{{', '.join(f'{self.expression(depth)}: {value}' for value in self._several(depth))}}}"

    def _ternary(self, depth: int) -> str:
        return f"({self.expression(depth)} if {self.expression(depth)} else {self.expression(depth)})"

    def _unary(self, depth: int) -> str:
        return f"{self._one(['not ', '-', '+'])}{self.expression(depth)}"

    def _holder(self, depth: int) -> str:
        return self._one(["messages", "messages[0]", "ns", "x", "loop", "tools", f"({self.expression(depth)})"])

    def _given(self, depth: int) -> str:
        return self._one(["", f"({self._arguments(depth)})"])

    def _arguments(self, depth: int) -> str:
        given = self._several(depth)
        if self._random.random() < 0.2:
            given.append(f"{self._one(KEYWORDS)}={self.expression(depth)}")
        return ", ".join(given)

    def _several(self, depth: int) -> list[str]:
        return [self.expression(depth) for _ in range(self._random.integers(0, 4))]

    def _one(self, choices: Sequence[Choice]) -> Choice:
        return choices[int(self._random.integers(len(choices)))]
