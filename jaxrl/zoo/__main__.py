"""`python -m jaxrl.zoo`."""

import sys

from jaxrl.zoo import main

if __name__ == "__main__":
    sys.exit(main())
