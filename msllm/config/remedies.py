"""The legal values nearest to a wrong one, as messages name them."""

from __future__ import annotations

import math


def divisors(number: int) -> list[int]:
    """All divisors, ascending."""
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return small + [number // d for d in reversed(small) if d * d != number]


def one_of(values: list[int], near: int, count: int = 8) -> str:
    """`to one of 1, 2, 4`: the legal values, or the `count` nearest to the given one where there are many."""
    kept = sorted(sorted(values, key=lambda value: abs(value - near))[:count])
    return f"to one of {', '.join(map(str, kept))}" if len(kept) > 1 else f"to {kept[0]}"


def around(number: int, step: int) -> str:
    """The multiples of `step` next to `number`: `24 or 32`."""
    below = number // step * step
    return f"{below} or {below + step}" if below else str(step)
