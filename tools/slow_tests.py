"""List the slow tests of a run, which `make check` leaves out.

    python tools/slow_tests.py FILE.xml

FILE.xml is pytest's --junitxml of the whole suite, from empty caches. A test function is slow if
all of its cases together took 0.3 s or more, fixtures included.
"""

import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict

SECONDS = 0.3


def main() -> None:
    """Print one `file::function` per line."""
    seconds: dict[str, float] = defaultdict(float)
    for case in ElementTree.parse(sys.argv[1]).iter("testcase"):
        file = case.attrib["classname"].replace(".", "/") + ".py"
        seconds[f"{file}::{case.attrib['name'].partition('[')[0]}"] += float(case.attrib["time"])
    print("\n".join(sorted(name for name, spent in seconds.items() if spent >= SECONDS)))


if __name__ == "__main__":
    main()
