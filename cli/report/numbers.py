"""Numbers as people read them."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """``1 job``, ``1,234 jobs``."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def speed(samples_per_second: float) -> str:
    """A speed with at least three significant digits."""
    if not 1 <= samples_per_second < 1e7:
        return f"{samples_per_second:.3g}"
    decimals = 0 if samples_per_second >= 100 else 1 if samples_per_second >= 10 else 2
    return f"{samples_per_second:,.{decimals}f}"


def ratio(value: float) -> str:
    """How many times as fast; two decimals below 100."""
    return f"{value:.2f}" if value < 100 else f"{value:.4g}"


def percent(used: float, total: float) -> str:
    """The share *used* of *total*: 100 % only if all is used, 0 % only if nothing is."""
    share = 100 * used / total
    if 0 < share < 100:
        share = min(max(share, 1.0), 99.0)
    return f"{share:.0f} %"


def duration(seconds: float) -> str:
    """A time in s."""
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"


def share(gap: float) -> str:
    """A gap in percent; one that is next to nothing is rounded up, so that it is not called 0."""
    return f"{max(100 * gap, 1e-4) if gap else 0:.2g} %"
