"""Print all presets as a table."""

from jaxrl import presets

print(presets.table())
