"""The grammar of a JSON object's members: in their order, some of them optional, separated by commas."""

from __future__ import annotations

from pyggml.errors import GrammarError
from pyggml.schema._rules import Rules


def members(
    rules: Rules, named: list[tuple[str, bool]], extra: str | None, least: int, most: int | None, place: str
) -> str:
    """Return an expression for the text between an object's braces.

    Args:
        rules: the grammar's rules.
        named: rule of each member with a known name, and True if it is required.
        extra: rule for members with other names; None: there are none.
        least: number of members, at least.
        most: number of members, at most; None: no limit.
        place: the object's JSON pointer, for messages.
    """
    n_required = sum(required for _, required in named)
    if extra is not None and least > max(1, n_required):
        raise GrammarError(f"{place}: a grammar cannot express minProperties above 1 for an object with free names")
    if extra is None and least > len(named):
        raise GrammarError(f"{place}: no value can match")

    def others(n: int) -> str | None:
        """The rest after ``n`` members, without named ones; None: impossible."""
        fewest, limit = max(0, least - n), None if most is None else most - n
        if extra is None or limit == 0:
            return "" if fewest == 0 and (limit is None or limit >= 0) else None
        if limit is not None and limit < 0:
            return None
        if n == 0:
            return rules.separated(extra, fewest, limit)
        return rules.repeated(rules.add(f'"," space {extra}'), fewest, limit)

    # Counting further makes no difference once there are enough members, unless there can be too many.
    enough = len(named) + 1 if most is not None else max(1, least)
    tails = [others(n) for n in range(enough + 1)]  # the rest after n members
    for rule, required in reversed(named):
        longer = []
        for n, without in enumerate(tails):
            after = tails[min(n + 1, enough)]
            alternatives = []
            if after is not None and (most is None or n < most):
                comma = '"," space ' if n > 0 else ""
                alternatives.append(f"{comma}{rule} {after}".strip())
            if not required and without is not None:
                alternatives.append(without or '""')
            longer.append(rules.add(" | ".join(alternatives)) if alternatives else None)
        tails = longer
    if tails[0] is None:
        raise GrammarError(f"{place}: no value can match")
    return tails[0]
