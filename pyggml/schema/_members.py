"""The grammar of a JSON object's members: in their order, some of them optional, separated by commas."""

from __future__ import annotations

from collections.abc import Callable

from pyggml.errors import GrammarError
from pyggml.schema import _gbnf_elements


class Members:
    """The members of an object in their order, separated by commas."""

    def __init__(
        self,
        members: list[tuple[str, bool]],
        extra: str | None,
        least: int,
        most: int | None,
        add: Callable[[str], str],
        error: Callable[[str], GrammarError],
    ) -> None:
        """Create the grammar; ``members``: rule of each, and True if required; ``extra``: rule for other members."""
        self._members, self._extra, self._least, self._most = members, extra, least, most
        self._add, self._error = add, error
        # Counting further makes no difference once there are enough members, unless there can be too many.
        self._enough = len(members) + 1 if most is not None else max(1, least)

    def text(self) -> str:
        """Return the grammar of the text between the braces."""
        n_required = sum(required for _, required in self._members)
        if self._extra is not None and self._least > max(1, n_required):
            raise self._error("a grammar cannot express minProperties above 1 for an object with free names")
        if self._extra is None and self._least > len(self._members):
            raise self._error("no value can match")
        tails: list[str | None] = [self._others(n) for n in range(self._enough + 1)]
        for rule, required in reversed(self._members):
            tails = [self._tail(rule, required, n, tails) for n in range(self._enough + 1)]
        if tails[0] is None:
            raise self._error("no value can match")
        return tails[0]

    def _tail(self, rule: str, required: bool, n: int, tails: list[str | None]) -> str | None:
        """Return the rest from one member on, after ``n`` members, given the possible tails; None: impossible."""
        after = tails[min(n + 1, self._enough)]
        alternatives = []
        if after is not None and (self._most is None or n < self._most):
            comma = '"," space ' if n > 0 else ""
            alternatives.append(f"{comma}{rule} {after}".strip())
        if not required and tails[n] is not None:
            alternatives.append(tails[n] or '""')
        return self._add(" | ".join(alternatives)) if alternatives else None

    def _others(self, n: int) -> str | None:
        least = max(0, self._least - n)
        most = None if self._most is None else self._most - n
        if self._extra is None or most == 0:
            return "" if least == 0 and (most is None or most >= 0) else None
        if most is not None and most < 0:
            return None
        more = self._add(f'"," space {self._extra}')
        if n > 0:
            return _gbnf_elements.repeated(more, least, most, self._add)
        rest = _gbnf_elements.repeated(more, max(0, least - 1), None if most is None else most - 1, self._add)
        whole = f"{self._extra} {rest}".strip()
        return whole if least > 0 else f"({whole})?"
