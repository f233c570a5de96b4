"""Numbers as text, in the same form in errors, reports and the command."""

from __future__ import annotations

import re

_PREFIXES = ("", "k", "M", "G", "T", "P")
_COUNTS = ("", " thousand", " million", " billion", " trillion")


def scaled(n: float) -> str:
    """Format ``3_812_000`` as "3.81 M", to be followed by a unit: decimal prefixes, three digits.

    Args:
        n: the number.
    """
    digits, power = _three_digits(n, len(_PREFIXES))
    return f"{digits} {_PREFIXES[power]}"


def bytes_text(n: float) -> str:
    """Format ``3_812_000`` as "3.81 MB".

    Args:
        n: number of bytes.
    """
    return f"{scaled(n)}B"


def parse_bytes(text: str) -> int:
    """Parse ``"3.81 MB"`` as 3_810_000 and ``"1GiB"`` as 1_073_741_824.

    Args:
        text: the size; ``k``, ``M`` ... are decimal, ``Ki``, ``Mi`` ... binary.

    Raises:
        ValueError: it is not a size.
    """
    found = re.fullmatch(r"(\d+(?:\.\d*)?)\s*(?:([kmgtp])(i?))?b?", text.strip(), re.IGNORECASE)
    if found is None:
        raise ValueError(f"{text!r} is no size such as 512MB or 12GiB")
    number, prefix, is_binary = found.groups()
    power = [each.lower() for each in _PREFIXES].index((prefix or "").lower())
    return round(float(number) * float(1024 if is_binary else 1000) ** power)


bytes_of = parse_bytes  # its name in earlier versions


def count_text(n: float) -> str:
    """Format ``1_235_814_432`` as "1.24 billion".

    Args:
        n: the number.
    """
    digits, power = _three_digits(n, len(_COUNTS))
    return f"{digits}{_COUNTS[power]}"


def percent_text(share: float) -> str:
    """Format ``0.621`` as "62%", and a nonzero share that would round to "0%" as "<1%".

    Args:
        share: the share, 0 to 1.
    """
    return "<1%" if 0 < share < 0.005 else f"{100 * share:.0f}%"


def bits_per_weight(n_bytes: int, n_params: int) -> float:
    """Return the bits that a weight takes on average, including scales, rounded to 3 digits; 0 without weights.

    Args:
        n_bytes: size of the weights.
        n_params: number of the weights.
    """
    return round(8 * n_bytes / n_params, 3) if n_params else 0.0


def size_label(n_params: float) -> str:
    """Format ``134_515_008`` as "135M", as in names of models.

    Args:
        n_params: number of parameters.
    """
    power = 0
    while n_params >= 999.5:
        n_params, power = n_params / 1000, power + 1
    digits = f"{n_params:.1f}".removesuffix(".0") if n_params < 9.95 else f"{n_params:.0f}"
    return f"{digits}{('', 'K', 'M', 'B', 'T')[power]}"


def counted(n: int, what: str) -> str:
    """Format ``2, "file"`` as "2 files".

    Args:
        n: the number.
        what: the noun in the singular.
    """
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def seconds_text(seconds: float) -> str:
    """Format ``83.2`` as "1 min 23 s".

    Args:
        seconds: the duration.
    """
    if seconds < 59.5:
        return f"{seconds:.2g} s" if seconds < 9.5 else f"{seconds:.0f} s"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"


def ago_text(seconds: float) -> str:
    """Format ``7300`` as "2 hours ago".

    Args:
        seconds: the time that has passed.
    """
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        n = int(seconds // size)
        if n > 0:
            return f"{counted(n, unit)} ago"
    return "just now"


def ranges(numbers: list[int]) -> str:
    """Format ``[0, 1, 2, 5]``, in ascending order, as "0-2, 5".

    Args:
        numbers: the numbers, in ascending order.
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _three_digits(n: float, n_powers: int) -> tuple[str, int]:
    """Return a number's first three digits, and the power of a thousand to multiply them by."""
    power = 0
    while n >= 999.5 and power < n_powers - 1:
        n, power = n / 1000, power + 1
    if power == 0 and n == round(n):
        return str(round(n)), power
    return f"{n:.{max(3 - len(str(int(n))), 0)}f}", power
