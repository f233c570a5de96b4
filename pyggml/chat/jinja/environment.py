"""Chat templates compiled by jinja2, with the settings of transformers, in its sandbox and within limits."""

from __future__ import annotations

import datetime as dt
import traceback
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from jinja2 import TemplateError, TemplateSyntaxError, meta, nodes
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import SandboxedEnvironment
from jinja2.visitor import NodeTransformer

from pyggml.chat.jinja import operations
from pyggml.chat.jinja.limits import CPU_SECONDS, TemplateLimitError, counted, limited, limits
from pyggml.errors import InvalidParameterError

_MAX_SOURCE = 200_000  # characters; published templates have up to a quarter, and reading more takes many seconds
_FILE = "<template>"  # jinja2's name for a template without one
# Filters that the compiler inserts; a template cannot name them.
_COUNTED, _CONCATENATION, _SLICED, _CONTAINER, _STEP = (f" {name}" for name in ("for", "~", "[:]", "[]", "=="))
_INSERTED: dict[str, Callable[..., Any]] = {
    _COUNTED: counted,
    _CONCATENATION: operations.concatenation,
    _SLICED: operations.sliced,
    _CONTAINER: operations.new_container,
    _STEP: operations.step,
}


class TemplateTooExpensiveError(InvalidParameterError):
    """A rendering exceeds a limit, so that others of the template probably would, too."""


class _RefusalError(TemplateError):
    """The error of ``raise_exception`` in a template."""


class _Generation(Extension):
    """``{% generation %}``, which marks what the assistant wrote: for training."""

    tags = {"generation"}  # noqa: RUF012  # declared so by jinja2

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_unchanged"), [], [], body).set_lineno(line)

    @staticmethod
    def _unchanged(caller: Callable[[], str]) -> str:
        return caller()


class _Environment(SandboxedEnvironment):
    """The sandbox. Unlike transformers', it lets templates modify their own lists and dictionaries, as some do."""

    intercepted_binops = frozenset(operations.BINARY_OPERATORS)
    concat = staticmethod(operations.joined)

    def __init__(self) -> None:
        # Unoptimised: constants would be computed when the template is compiled, without limits.
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, optimized=False, finalize=operations.text_of,
            extensions=[_Generation, LoopControlExtension],
        )  # fmt: skip
        self.filters.update(operations.filters(), **_INSERTED)
        self.globals.update(raise_exception=_refuse, strftime_now=_now)
        del self.globals["lipsum"]

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:  # noqa: ARG002
        return operations.BINARY_OPERATORS[operator](left, right)

    def call(self, context: Context, obj: Any, *args: Any, **kwargs: Any) -> Any:
        def invoke(function: Any, *args: Any, **kwargs: Any) -> Any:
            return super(_Environment, self).call(context, function, *args, **kwargs)

        with limits().call():
            return operations.bounded_call(obj, args, kwargs, invoke)


class _Instrumented(NodeTransformer):
    """Inserts the filters that count steps and check sizes."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.iter = _filtered(node.iter, _COUNTED)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        first, *others = node.nodes
        return _filtered(first, _CONCATENATION, others)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if not isinstance(node.arg, nodes.Slice):
            return node
        ends = (node.arg.start, node.arg.stop, node.arg.step)
        return _filtered(node.node, _SLICED, [nodes.Const(None) if end is None else end for end in ends])

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.expr = _filtered(node.expr, _STEP)
        return node

    def visit_List(self, node: nodes.List) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(node, _CONTAINER)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(node, _CONTAINER)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(node, _CONTAINER) if node.ctx == "load" else node


def _filtered(node: Any, name: str, args: list[nodes.Expr] | None = None) -> nodes.Filter:
    filtered = nodes.Filter(node, name, args or [], [], None, None)
    filtered.set_lineno(node.lineno)
    return filtered


def _refuse(message: object) -> NoReturn:
    raise _RefusalError(str(message))


def _now(form: str) -> str:
    return dt.datetime.now().strftime(form)


class JinjaTemplate:
    """A compiled chat template. Any thread may render it.

    Attributes:
        source: its text.
        variables: names of the variables that it reads.
    """

    def __init__(self, source: str) -> None:
        """Compile a template.

        Raises:
            InvalidParameterError: it is not valid, or nested too deeply.
        """
        if len(source) > _MAX_SOURCE:
            raise InvalidParameterError(
                f"the chat template could not be read: it has {len(source)} characters, and may have {_MAX_SOURCE}"
            )
        self.source = source
        environment = _Environment()
        try:
            tree = environment.parse(source)
            self.variables = frozenset(meta.find_undeclared_variables(tree)) - environment.globals.keys()
            code = environment.compile(_Instrumented().visit(tree), filename=_FILE)
        except TemplateSyntaxError as error:
            raise InvalidParameterError(
                f"the chat template could not be read: {error.message} (line {error.lineno})"
            ) from None
        except (RecursionError, SyntaxError, MemoryError):
            raise InvalidParameterError("the chat template could not be read: it is nested too deeply") from None
        self._template = environment.template_class.from_code(environment, code, environment.globals)

    def render(
        self,
        variables: Mapping[str, Any],
        *,
        n_input: int = 0,
        cpu_seconds: float = CPU_SECONDS,
        quoted: bool = False,
    ) -> str:
        """Render the template.

        Args:
            variables: the template may modify lists and dictionaries in them.
            n_input: number of characters of the conversation, which limits those that the template may make of them.
            cpu_seconds: limit of the processor time.
            quoted: the variables contain :class:`~pyggml.chat.jinja.quoted_text.QuotedText`; the result is one, too.

        Raises:
            TemplateTooExpensiveError: a limit is exceeded.
            InvalidParameterError: the template refuses the variables, or fails.
        """
        try:
            with limited(n_input, cpu_seconds=cpu_seconds, quoted=quoted):
                return self._template.render(variables)
        except _RefusalError as error:
            raise InvalidParameterError(f"the chat template refuses this conversation: {error}") from None
        except TemplateLimitError as error:
            raise TemplateTooExpensiveError(f"the chat template could not be rendered: {error}") from None
        except RecursionError:
            raise InvalidParameterError(
                "the chat template could not be rendered: the conversation is nested too deeply, or the template calls "
                "itself"
            ) from None
        except Exception as error:  # templates may raise anything
            raise InvalidParameterError(
                f"the chat template could not be rendered: {_reason(error)}{_place(error)}"
            ) from None


def _reason(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return text if isinstance(error, TemplateError) else f"{type(error).__name__}: {text}"


def _place(error: Exception) -> str:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == _FILE]
    return f" (line {lines[-1]})" if lines else ""
