"""Numbers and spans of time as people write them."""

import math


def short(value: float) -> str:
    """Write a number as people read it."""
    if math.isfinite(value) and value == int(value) and abs(value) < 1e12:
        return f"{int(value):,}"
    return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.4g}"


def duration(seconds: float) -> str:
    """Write a time span as people say it."""
    seconds = int(seconds)
    if seconds < 60:
        return f"{seconds}s"
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{seconds:02d}s"
