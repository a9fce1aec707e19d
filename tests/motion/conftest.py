"""Fixtures of the motion tests: our humanoid, and captured clips if available."""

from pathlib import Path

import pytest

from jaxrl.motion import skeleton

MOTIONS = Path(__file__).resolve().parents[3] / "shared" / "motions"


@pytest.fixture(scope="session")
def model():
    return skeleton.load_model()


@pytest.fixture(scope="session")
def bones(model):
    return skeleton.describe(model)


@pytest.fixture(scope="session")
def motions():
    if not MOTIONS.is_dir():
        pytest.skip("no captured motions available")
    return MOTIONS
