"""Print all settings as Markdown tables."""

import sys

from jaxrl.config import settings
from jaxrl.errors import exit_status

if __name__ == "__main__":
    sys.exit(exit_status(lambda: print(settings.tables())))
