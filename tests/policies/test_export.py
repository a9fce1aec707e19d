"""Exported policies act like the trained ones, as JAX programs and in NumPy."""

import dataclasses
import json
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export as jax_export

from jaxrl import export
from jaxrl.algorithms.policy import PolicyParams
from jaxrl.config import NetworkConfig
from jaxrl.learning import normalizer
from jaxrl.networks import actor_critic
from jaxrl.policies import export as policy_export
from jaxrl.policies import files, load
from jaxrl.policies.numpy_policy import Policy
from jaxrl.types import ActionSpec, EnvSpec
from tests.helpers import tiny


def vector(size, dtype=jnp.float32):
    return jax.ShapeDtypeStruct((size,), dtype)


CONTINUOUS, DISCRETE = ActionSpec(3, discrete=False), ActionSpec(3, discrete=True)
PLAIN = EnvSpec(vector(5), CONTINUOUS)
PARTS = EnvSpec({"b": vector(2), "a": vector(3), "privileged_state": vector(7)}, DISCRETE)
BYTES = EnvSpec({"a": vector(3), "raw": vector(2, jnp.uint8)}, CONTINUOUS)
TOKENS = EnvSpec(jax.ShapeDtypeStruct((4, 2), jnp.uint8), DISCRETE, tokens=(3, 5))
SMALL = NetworkConfig(hidden=(8, 6), rnn_size=4)
KINDS = {
    **{name: (PLAIN, {"activation": name}) for name in ("swish", "relu", "tanh", "elu", "gelu")},
    "layer norm": (PLAIN, {"norm": "layer"}),
    "rms norm": (PLAIN, {"norm": "rms"}),
    "residual blocks": (PLAIN, {"residual_blocks": 2, "norm": "rms"}),
    "plain residual block": (PLAIN, {"residual_blocks": 1}),
    "clipped": (PLAIN, {"distribution": "normal", "state_dependent_std": False}),
    "clip of observations": (PLAIN, {"clip_obs": 0.5}),
    "sde": (PLAIN, {"sde": True}),
    "noisy": (PLAIN, {"distribution": "noisy"}),
    "greedy": (PARTS, {"distribution": "greedy"}),
    "dict": (PARTS, {}),
    "bytes": (BYTES, {}),
    "tokens": (TOKENS, {}),
    "lstm": (PLAIN, {"rnn": "lstm"}),
    "gru": (PARTS, {"rnn": "gru"}),
    "two lstm layers": (PLAIN, {"rnn": "lstm", "rnn_layers": 2}),
    "three gru layers": (BYTES, {"rnn": "gru", "rnn_layers": 3}),
    "two mingru layers": (PARTS, {"rnn": "mingru", "rnn_layers": 2}),
    "recurrent critic": (PLAIN, {"rnn": "gru", "rnn_of": "critic"}),
}


def observations(spec, number, seed):
    rng = np.random.default_rng(seed)

    def draw(s):
        if s.dtype == jnp.uint8:
            return rng.integers(0, 3, (number, *s.shape), np.uint8)
        return rng.normal(2.0, 5.0, (number, *s.shape)).astype(np.float32)

    return jax.tree.map(draw, spec.obs)


def _statistics(spec):
    """Return the statistics of 50 observations."""
    update = jax.jit(lambda seen: normalizer.update(normalizer.init(spec.obs), seen))
    return update(observations(spec, 50, seed=2))


def write_policy(path, spec, **changes):
    """Write a policy with random nonzero weights and a used normalizer."""
    config = dataclasses.replace(SMALL, **changes)
    networks = actor_critic.build(spec, config)
    actor = jax.eval_shape(networks.actor.init, jax.random.key(0))
    leaves, structure = jax.tree.flatten(actor)
    rng = np.random.default_rng(4)
    leaves = [rng.normal(0, 0.5, leaf.shape).astype(np.float32) for leaf in leaves]
    stats = _statistics(spec)
    params = PolicyParams(jax.tree.unflatten(structure, leaves), stats)
    files.write(path, params, spec, config, {})
    return load.load_policy(path)


@pytest.mark.parametrize("kind", KINDS)
def test_both_exports_match_the_policy(kind, tmp_path):
    spec, changes = KINDS[kind]
    policy = write_policy(tmp_path / "policy.npz", spec, **changes)
    policy_export.write(tmp_path / "policy.npz", tmp_path / "out")
    program = jax.jit(jax_export.deserialize((tmp_path / "out" / "policy.jax").read_bytes()).call)
    numpy_policy = Policy(tmp_path / "out" / "policy.npz")
    carry = program_carry = policy.initial_carry(24)
    numpy_carry, seen = None, set()
    for step in range(4):
        obs = observations(spec, 24, seed=10 + step)
        action, carry = policy.step(obs, carry)
        if jax.tree.leaves(carry):
            program_action, program_carry = program(obs, program_carry)
        else:
            program_action = program(obs)
        numpy_action, numpy_carry = numpy_policy.step(obs, numpy_carry)
        np.testing.assert_allclose(program_action, action, atol=1e-5)
        np.testing.assert_allclose(numpy_action, action, atol=2e-5)
        assert numpy_action.shape == action.shape
        seen |= set(np.asarray(action).ravel().tolist())
    assert len(seen) > 1  # actions depend on observations


def test_policy_files_keep_the_clip_of_observations(tmp_path):
    near, far = (np.full((1, 5), x, np.float32) for x in (10.0, 20.0))  # no action at its bound
    for clip, same in ((0.5, True), (1e9, False)):
        policy = write_policy(tmp_path / "policy.npz", PLAIN, clip_obs=clip)
        assert policy.params.obs_stats.clip == clip
        assert np.array_equal(policy(near), policy(far)) == same


def test_exports_accept_single_and_batched_observations(tmp_path):
    policy = write_policy(tmp_path / "policy.npz", PLAIN)
    policy_export.write(tmp_path / "policy.npz", tmp_path)
    program = jax_export.deserialize((tmp_path / "policy.jax").read_bytes())
    assert program.platforms == policy_export.PLATFORMS
    for number in (1, 3, 17):
        obs = observations(PLAIN, number, seed=number)
        np.testing.assert_allclose(program.call(obs), policy(obs), atol=1e-6)
    numpy_policy, one = Policy(tmp_path / "policy.npz"), obs[0]
    np.testing.assert_allclose(numpy_policy(one), policy(one), atol=2e-5)


def test_export_without_statistics_does_not_normalize(tmp_path):
    policy = write_policy(tmp_path / "policy.npz", PLAIN)
    fresh = policy.params._replace(obs_stats=normalizer.init(PLAIN.obs))
    files.write(tmp_path / "policy.npz", fresh, PLAIN, SMALL, {})
    policy = load.load_policy(tmp_path / "policy.npz")
    policy_export.write(tmp_path / "policy.npz", tmp_path / "out")
    obs = 100 * observations(PLAIN, 3, seed=1)
    np.testing.assert_allclose(Policy(tmp_path / "out" / "policy.npz")(obs), policy(obs), atol=1e-4)


def test_image_policies_export_only_the_jax_program(tmp_path):
    spec = EnvSpec(jax.ShapeDtypeStruct((16, 16, 1), jnp.uint8), DISCRETE)
    policy = write_policy(tmp_path / "policy.npz", spec)
    messages = policy_export.write(tmp_path / "policy.npz", tmp_path / "out")
    assert "image observations" in messages[-1] and not (tmp_path / "out" / "policy.npz").exists()
    program = jax_export.deserialize((tmp_path / "out" / "policy.jax").read_bytes()).call
    obs = observations(spec, 5, seed=3)
    np.testing.assert_array_equal(program(obs), policy(obs))


@pytest.mark.usefixtures("shared_programs", "no_plots")
@pytest.mark.parametrize("kind", ["trained", "lstm"])
def test_policy_matches_in_a_process_without_jax(kind, tmp_path):
    if kind == "trained":
        source = tiny.run(tmp_path / "run", "--epochs", "1")
    else:
        source = tmp_path / "policy.npz"
        write_policy(source, EnvSpec(vector(4), CONTINUOUS), rnn="lstm")
    assert export.main([str(source), "--out", str(tmp_path / "out")]) == 0
    policy = load.load_policy(source)
    obs = np.random.default_rng(0).normal(0, 2, (5, 6, 4)).astype(np.float32)
    carry, actions = policy.initial_carry(6), []
    for step in obs:
        action, carry = policy.step(step, carry)
        actions.append(np.asarray(action).tolist())
    assert kind == "trained" or len(np.unique(actions)) > 50  # depend on observations
    np.save(tmp_path / "obs.npy", obs)
    script = """
        import json, sys
        for name in ("jax", "jaxlib", "flax", "jaxrl"):
            sys.modules[name] = None  # an import of it fails
        import numpy as np
        from policy import Policy
        policy, carry, actions = Policy(), None, []
        for step in np.load(sys.argv[1]):
            action, carry = policy.step(step, carry)
            actions.append(action.tolist())
        print(json.dumps(actions))
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "obs.npy")]
    done = subprocess.run(command, cwd=tmp_path / "out", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(json.loads(done.stdout), actions, atol=2e-5)


def test_missing_policy_is_reported(tmp_path, capsys):
    assert export.main([str(tmp_path)]) == 2
    assert "No policy at" in capsys.readouterr().err
