"""Motion observations and reward terms against SciPy, and their invariances."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from jaxrl.motion import library, observations, rotations
from jaxrl.motion.library import Reference

BODIES = 15
SCALES = (100.0, 10.0, 0.1, 0.1)

PROPRIOCEPTION, GOAL_OBS, REWARD_TERMS = (
    jax.jit(observations.proprioception),
    jax.jit(observations.goal_obs),
    jax.jit(observations.reward_terms),
)


def _reference(seed):
    """Return bodies with random positions, rotations and velocities."""
    rng = np.random.default_rng(seed)
    turns = Rotation.random(BODIES, random_state=rng).as_quat(scalar_first=True)
    parts = [rng.normal(size=(BODIES, 3)) for _ in range(3)]
    arrays = np.zeros(43), np.zeros(34), parts[0], turns, parts[1], parts[2]
    return Reference(*(jnp.asarray(x, jnp.float32) for x in arrays))


@pytest.fixture(scope="module")
def pair():
    return _reference(0), _reference(1)


def _moved(reference, angle, shift):
    moved = library.rotate_yaw(reference, jnp.float32(angle))
    return moved._replace(position=moved.position + jnp.broadcast_to(shift, (BODIES, 3)))


def _heading(quaternion):
    """Return the rotation about z that remains once the tilt about a level axis is undone."""
    w, _, _, z = quaternion
    return Rotation.from_rotvec([0.0, 0.0, 2.0 * np.arctan2(z, w)])


def _axes(turns):
    matrix = turns.as_matrix()
    return np.concatenate([matrix[:, :, 0], matrix[:, :, 2]], -1)


def _double(reference):
    """Return a reference as float64 arrays, with SciPy's rotations."""
    parts = {name: np.asarray(x, np.float64) for name, x in reference._asdict().items()}
    return parts | {"turn": Rotation.from_quat(parts["rotation"], scalar_first=True)}


def test_sizes_match_phc(pair):
    assert PROPRIOCEPTION(pair[0]).shape == (15 * BODIES - 2,) == (223,)
    assert GOAL_OBS(*pair).shape == (24 * BODIES,) == (360,)


def test_proprioception_matches_scipy(pair):
    now = _double(pair[0])
    back = _heading(now["rotation"][0]).inv()
    expected = np.concatenate(
        [
            now["position"][0, 2:],
            back.apply(now["position"] - now["position"][0])[1:].ravel(),
            _axes(back * now["turn"]).ravel(),
            back.apply(now["velocity"]).ravel(),
            back.apply(now["spin"]).ravel(),
        ]
    )
    np.testing.assert_allclose(PROPRIOCEPTION(pair[0]), expected, atol=2e-6)


def test_goal_obs_matches_scipy(pair):
    now, then = map(_double, pair)
    back = _heading(now["rotation"][0]).inv()
    expected = [
        back.apply(then["position"] - now["position"]),
        _axes(back * then["turn"] * now["turn"].inv() * back.inv()),
        back.apply(then["velocity"] - now["velocity"]),
        back.apply(then["spin"] - now["spin"]),
        back.apply(then["position"] - now["position"][0]),
        _axes(back * then["turn"]),
    ]
    expected = np.concatenate([part.ravel() for part in expected])
    np.testing.assert_allclose(GOAL_OBS(*pair), expected, atol=3e-6)


@pytest.mark.parametrize("angle", [0.7, -2.0, 3.1])
def test_invariance_to_yaw_and_horizontal_shift(pair, angle):
    shift = jnp.asarray([3.0, -5.0, 0.0])
    now, then = (_moved(one, angle, shift) for one in pair)
    np.testing.assert_allclose(PROPRIOCEPTION(now), PROPRIOCEPTION(pair[0]), atol=5e-6)
    np.testing.assert_allclose(GOAL_OBS(now, then), GOAL_OBS(*pair), atol=5e-6)
    np.testing.assert_allclose(
        REWARD_TERMS(now, then, SCALES), REWARD_TERMS(*pair, SCALES), atol=1e-5
    )


def test_root_height_is_observed(pair):
    higher = pair[0]._replace(position=pair[0].position + jnp.asarray([[0.0, 0.0, 0.5]]))
    difference = np.asarray(PROPRIOCEPTION(higher) - PROPRIOCEPTION(pair[0]))
    assert difference[0] == pytest.approx(0.5, abs=1e-6)
    np.testing.assert_allclose(difference[1:], 0.0, atol=1e-6)


def test_invariance_to_quaternion_sign(pair):
    now, then = (one._replace(rotation=-one.rotation) for one in pair)
    np.testing.assert_allclose(PROPRIOCEPTION(now), PROPRIOCEPTION(pair[0]), atol=1e-6)
    np.testing.assert_allclose(GOAL_OBS(now, pair[1]), GOAL_OBS(*pair), atol=2e-6)
    np.testing.assert_allclose(GOAL_OBS(pair[0], then), GOAL_OBS(*pair), atol=2e-6)


def test_perfect_tracking_gives_one_for_each_term(pair):
    np.testing.assert_allclose(REWARD_TERMS(pair[0], pair[0], SCALES), np.ones(4), atol=1e-6)
    np.testing.assert_array_equal(observations.body_distances(pair[0], pair[0]), np.zeros(BODIES))


@pytest.mark.parametrize("body", [0, 7, 14])
def test_each_error_affects_only_its_own_term(pair, body):
    """One body is off along (3, 0, 4); means are over 15 bodies and, for vectors, 3 axes."""
    now, off = pair[0], jnp.zeros((BODIES, 3)).at[body].set(jnp.asarray([0.03, 0.0, 0.04]))
    turn = jnp.zeros((BODIES, 3)).at[body, 1].set(0.3)
    turned = rotations.multiply(rotations.from_exp_map(turn), now.rotation)
    changed = {
        "position": (now._replace(position=now.position + off), 100 * 0.05**2 / 45),
        "rotation": (now._replace(rotation=turned), 10 * 0.3**2 / 15),
        "velocity": (now._replace(velocity=now.velocity + 40 * off), 0.1 * 2.0**2 / 45),
        "spin": (now._replace(spin=now.spin + 100 * off), 0.1 * 5.0**2 / 45),
    }
    for name, (moved, exponent) in changed.items():
        found = REWARD_TERMS(moved, now, SCALES)._asdict()
        assert found.pop(name) == pytest.approx(np.exp(-exponent), rel=2e-5), name
        np.testing.assert_allclose(list(found.values()), 1.0, atol=1e-6)


def test_body_distances_are_per_body(pair):
    expected = np.linalg.norm(np.asarray(pair[0].position - pair[1].position), axis=-1)
    np.testing.assert_allclose(observations.body_distances(*pair), expected, rtol=1e-6)
