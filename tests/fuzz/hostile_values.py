"""Values that callers may pass by mistake or malice, as Python expressions, so that a case can be written down.

``NAMES`` has what the expressions use, besides what a fuzzer adds.
"""

from __future__ import annotations

import decimal
import fractions
import io
import math
from pathlib import Path
from typing import Any, NoReturn

import numpy as np


class CallersError(Exception):
    """An exception of callers' own code; any call may propagate it."""


class Raises:
    """An object of which one method raises."""

    def __new__(cls, *names: str) -> Any:
        return object.__new__(type("Raises", (), dict.fromkeys(names, _raise)))


def _raise(*_args: object) -> NoReturn:
    raise CallersError


class Index(int):
    """An int that is none to a check of types."""


class Text(str):
    """A str of a class of its own."""

    __slots__ = ()


def cyclic() -> list[Any]:
    """A list that holds itself."""
    one: list[Any] = [1]
    one.append(one)
    return one


def cyclic_dict() -> dict[str, Any]:
    """The same for mappings."""
    one: dict[str, Any] = {"role": "user", "type": "object"}
    one["content"] = one["properties"] = one
    return one


def nested(depth: int) -> list[Any]:
    """A list in a list in a list."""
    one: list[Any] = []
    for _ in range(depth):
        one = [one]
    return one


def raising(*_args: object, **_kwargs: object) -> NoReturn:
    """A callback that raises."""
    raise CallersError


NAMES: dict[str, Any] = {
    "np": np,
    "math": math,
    "io": io,
    "Path": Path,
    "Decimal": decimal.Decimal,
    "Fraction": fractions.Fraction,
    "Raises": Raises,
    "Index": Index,
    "Text": Text,
    "cyclic": cyclic,
    "cyclic_dict": cyclic_dict,
    "nested": nested,
    "raising": raising,
}

NUMBERS = [
    "0",
    "1",
    "2",
    "-1",
    "5",
    "255",
    "256",
    "513",
    "2**31-1",
    "2**31",
    "2**32-1",
    "2**32",
    "2**63-1",
    "2**63",
    "2**64",
    "-2**31",
    "-2**31-1",
    "-2**63",
    "10**400",
    "-10**400",
    "10**5000",
    "True",
    "False",
    "0.0",
    "-0.0",
    "0.5",
    "1.5",
    "1e-320",
    "1e38",
    "1e39",
    "1e300",
    "math.nan",
    "math.inf",
    "-math.inf",
    "Index(3)",
    "Index(2**40)",
    "np.int8(-1)",
    "np.int64(7)",
    "np.uint64(2**63)",
    "np.float32(0.5)",
    "np.float16('nan')",
    "np.float64('inf')",
    "np.bool_(True)",
    "np.array(3)",
    "np.array([3])",
    "np.array(2.5)",
    "np.datetime64('nat')",
    "np.timedelta64(1)",
    "np.longdouble(1)",
    "Fraction(1,3)",
    "Fraction(10**400,3)",
    "Decimal('NaN')",
    "Decimal('1e999')",
    "Decimal('sNaN')",
    "Decimal(2)",
    "complex(1,2)",
]

TEXTS = [
    r"''",
    r"'x'",
    r"'5'",
    r"'\ud800'",
    r"'a\0b'",
    r"'\0'",
    r"'\x1b[31m'",
    r"'x'*10000",
    r"'é'*300",
    r"'\U0010ffff'",
    r"'<|im_end|>'",
    r"'<s>'",
    r"'{{'",
    r"'{%'",
    r"'['",
    r"'('",
    r"'*'",
    r"'(?P<a>x)\\1'",
    r"'../x'",
    r"'/'",
    r"'.'",
    r"'~'",
    r"'%s%n'",
    r"b''",
    r"b'x'",
    r"b'\xff'",
    r"b'\0'",
    r"bytearray(b'x')",
    r"memoryview(b'abc')",
    r"Text('x')",
    r"Text('\ud800')",
    r"'nan'",
    r"'auto'",
    r"'none'",
    r"'root'",
    r"'all'",
    r"'last'",
    r"'cpu'",
    r"'CPU'",
    r"'cuda:0'",
    r"'gpu'",
    r"'rpc:0'",
    r"'cpu:1'",
    r"'cuda:99999999999999999999'",
    r"'q8_0'",
    r"'f16'",
    r"'Q4_K_M'",
]

LISTS = r"""[] () {} set() frozenset([1]) [1] [0,1,2] [1,2.5] [None] [True] ['x'] [''] ['\ud800'] [b'x'] [-1] [2**31]
    [10**400] [2**64] [[1]] [[1],[1,2]] [[]] [math.nan] [object()] (1,2) ('a',) range(5) range(0) range(2**40)
    range(-5,0) iter([1,2]) (x*x\ for\ x\ in\ [1]) {1:2} {'x':1} {None:None} {1:'x'} {'1':1.0} {0:math.nan}
    {0:-math.inf} {2**40:1} {-1:1} {(1,):1} {0:10**400} {0:None} {'\ud800':1} {'type':'object'} {'type':5}
    {'$ref':'#'} {'$ref':'#/x'} {'role':'user','content':'x'} [{'role':'user','content':'x'}] [{'role':'user'}]
    [{'role':5}] [{}] [{'role':'user','content':[]}] [{'role':'tool','content':None}]
    [{'role':'user','content':'\ud800'}] [{'role':'assistant','tool_calls':[{}]}]
    [{'type':'function','function':{'name':'f','parameters':{}}}]
    [{'type':'function','function':{'name':'\ud800'}}] [{'name':5}] np.zeros(0) np.zeros(0,np.int32)
    np.zeros((2,2)) np.zeros((0,5)) np.zeros((2,0)) np.array([1,2]) np.array([1,2],np.int32) np.array([1,2],'>i4')
    np.arange(10,dtype=np.int32)[::2] np.array([1,2],np.uint8) np.array([2**40]) np.array(['a']) np.array([b'a'])
    np.array([None,{}],object) np.array([1,2],object) np.array([1+2j]) np.array([True,False])
    np.array([math.nan,math.inf,1.0]) np.array([1e300]) np.ones(256,np.float32) np.ones((3,256),np.float32)
    np.ones((2,2,2,2,2)) np.array([(1,2.0)],'i4,f4') np.array(['2020'],'M8') np.ma.array([1,2],mask=[0,1])
    np.broadcast_to(np.float32(1),(4,256)) np.ones(32,np.uint8) np.full((2,34),255,np.uint8) cyclic()
    cyclic_dict() nested(50) nested(3000) memoryview(b'abc').cast('b') memoryview(b'abcdefgh').cast('i')
    [cyclic()] [nested(2000)]""".replace("\\ ", "\0").split()
LISTS = [text.replace("\0", " ") for text in LISTS]

OBJECTS = [
    "None",
    "...",
    "NotImplemented",
    "object()",
    "object",
    "int",
    "type",
    "str",
    "Exception",
    "len",
    "print",
    "raising",
    "lambda:None",
    "lambda*a:None",
    "lambda*a:False",
    "lambda*a:1",
    "lambda*a:'x'",
    "Path('x')",
    "Path('')",
    "Path('missing.gguf')",
    "io.BytesIO(b'x')",
    "io.StringIO()",
    "Raises()",
    "Raises('__index__')",
    "Raises('__int__')",
    "Raises('__float__')",
    "Raises('__len__')",
    "Raises('__len__','__getitem__')",
    "Raises('__iter__')",
    "Raises('__repr__')",
    "Raises('__str__')",
    "Raises('__repr__','__index__')",
    "Raises('__bool__')",
    "Raises('__eq__')",
    "Raises('__fspath__')",
    "Raises('__array__')",
    "Raises('__buffer__')",
    "Raises('__call__')",
    "Raises('__getattr__')",
    "Raises('__hash__')",
    "Raises('__class_getitem__')",
    "Raises('__enter__')",
    "[Raises('__repr__')]",
    "{'x':Raises('__repr__')}",
    "[Raises('__index__')]",
]

ALL = [*NUMBERS, *TEXTS, *LISTS, *OBJECTS]
