"""What tests of runs may ask for."""

import pytest

from jaxrl.runtime import compiled
from tests.runtime import sharing


@pytest.fixture(scope="module")
def shared_programs():
    """Let runs of the same settings, of this and other files, share what one of them compiled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "compile_programs", sharing.compile_once)
        yield
