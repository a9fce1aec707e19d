"""The tests of clip commands share fixtures with those of motion."""

from tests.motion.conftest import bones, model, motions

__all__ = ["bones", "model", "motions"]
