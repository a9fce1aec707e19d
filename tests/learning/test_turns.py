import jax
import pytest

from jaxrl.learning import turns


@pytest.mark.parametrize("backend, expected", [("gpu", 7), ("cpu", 1), ("tpu", 1)])
def test_loops_are_unrolled_on_a_gpu_alone(monkeypatch, backend, expected):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    assert turns.on_gpu(7) == expected
