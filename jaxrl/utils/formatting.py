"""Numbers, counts and durations as short text."""

import math


def short(value: float) -> str:
    """Return a number as short text: 12,345 or 0.1235."""
    if math.isfinite(value) and value == int(value) and abs(value) < 1e12:
        return f"{int(value):,}"
    return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.4g}"


def plural(number: int, noun: str) -> str:
    """Return a count of things as text: 1 episode, 2,000 episodes."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def duration(seconds: float) -> str:
    """Return a duration as text: 42s, 3m05s or 2h10m."""
    seconds = int(seconds)
    if seconds < 60:
        return f"{seconds}s"
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{seconds:02d}s"
