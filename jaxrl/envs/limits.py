"""What counts as non-finite; nothing here imports JAX."""

OBS_LIMIT = 1e10  # physics passes it on its way to NaN, and the square of more overflows
