"""The table in tests/reliability.py is complete, and the tests it names exist."""

import ast
import functools
from pathlib import Path

import pytest

from tests.reliability import CASES

ROOT = Path(__file__).parent.parent


def test_no_case_is_missing():
    assert list(CASES) == list(range(1, 75))


@functools.cache
def defined(path: str) -> set[str]:
    """Return the top-level functions of a file."""
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("number", CASES)
def test_every_case_has_tests_or_a_reason(number):
    case = CASES[number]
    assert case.description and (case.tests or case.not_applicable)
    assert len(set(case.tests)) == len(case.tests)
    for name in case.tests:
        path, _, test = name.partition("::")
        assert test.startswith("test_") and test.partition("[")[0] in defined(path), name
