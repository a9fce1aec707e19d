"""Print all presets as a table."""

import sys

from jaxrl.config import presets
from jaxrl.errors import exit_status

if __name__ == "__main__":
    sys.exit(exit_status(lambda: print(presets.table())))
