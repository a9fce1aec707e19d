"""Domain randomisation on a small Brax task: physics are drawn per episode."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import config, errors
from jaxrl.envs import factory, randomize, registry, vector_env
from jaxrl.envs.tasks import probes
from tests.helpers import custom_envs

NUM_ENVS, STEPS, LENGTH, POOL = 4, 7, 3, 64


def tilt_gravity(sys, key):
    return sys.replace(gravity=sys.gravity.at[0].set(jax.random.uniform(key, (), float, -5, 5)))


def scale_speed(sys, key):
    return custom_envs.Physics(sys.speed * jax.random.uniform(key), sys.width)


def _pendulum():
    return registry.make("inverted_pendulum", "spring")


@pytest.fixture(scope="module", autouse=True)
def _rank_promotion():
    with jax.numpy_rank_promotion("allow"):  # Brax relies on it
        yield


@pytest.fixture(scope="module")
def rollout():
    """Roll out two and a third episodes with the same actions in all environments."""
    single = _pendulum()
    original = single.sys
    env = vector_env.VectorEnv(
        randomize.Randomized(single, tilt_gravity),
        NUM_ENVS,
        LENGTH,
        pool_size=POOL,
        random_first_age=False,
    )
    actions = jnp.sin(jnp.arange(STEPS * 1.0))[:, None, None] * jnp.ones((1, NUM_ENVS, 1))

    @jax.jit
    def play(key):
        start, pool = env.reset(key), env.sample_pool(jax.random.fold_in(key, 1))

        def step(state, inputs):
            action, key = inputs
            after, outcome = env.step(state, action, pool, key)
            return after, (state.packed, outcome)

        keys = jax.random.split(jax.random.fold_in(key, 2), STEPS)
        _, (states, outcomes) = jax.lax.scan(step, start, (actions, keys))
        return pool, states, outcomes

    pool, states, outcomes = jax.device_get(play(jax.random.key(0)))
    pool, states = env.brax_state(pool), env.brax_state(states)
    return single, original, actions, pool, states, outcomes


def test_only_randomized_leaves_are_carried(rollout):
    *_, pool, states, _ = rollout
    assert [leaf.shape for leaf in states.info["randomization"]] == [(STEPS, NUM_ENVS, 3)]
    assert [leaf.shape for leaf in pool.info["randomization"]] == [(POOL, 3)]


def test_environments_and_pool_differ_in_physics(rollout):
    _, original, _, pool, states, _ = rollout
    for gravity in (states.info["randomization"][0][0], pool.info["randomization"][0]):
        assert len(np.unique(gravity[:, 0])) == len(gravity)
        assert (np.abs(gravity[:, 0]) < 5).all()
        np.testing.assert_array_equal(gravity[:, 2], np.full(len(gravity), original.gravity[2]))


def test_physics_are_fixed_per_episode_and_redrawn_from_the_pool(rollout):
    *_, pool, states, outcomes = rollout
    drawn = states.info["randomization"][0][..., 0]
    ended = outcomes.terminated | outcomes.truncated
    assert outcomes.truncated[LENGTH - 1 :: LENGTH].all() and ended.sum() == 2 * NUM_ENVS
    same = drawn[1:] == drawn[:-1]
    np.testing.assert_array_equal(same, ~ended[:-1])
    assert np.isin(drawn[LENGTH:], pool.info["randomization"][0][:, 0]).all()


def test_steps_match_an_environment_with_the_same_physics(rollout):
    _, original, actions, _, states, outcomes = rollout
    reference = _pendulum()

    @jax.jit
    @jax.vmap
    def play(gravity, state, actions):
        reference.sys = original.replace(gravity=gravity)

        def step(state, action):
            state = reference.step(state, action)
            return state, (state.obs, state.reward)

        with jax.default_matmul_precision("highest"):
            return jax.lax.scan(step, state, actions)[1]

    info = {k: v for k, v in states.info.items() if k != "randomization"}
    start = jax.tree.map(lambda x: x[0], states.replace(info=info))
    gravity = states.info["randomization"][0][0]
    obs, reward = play(gravity, start, actions[:LENGTH].swapaxes(0, 1))
    close = {"rtol": 1e-4, "atol": 1e-5}
    np.testing.assert_allclose(outcomes.next_obs[:LENGTH].swapaxes(0, 1), obs, **close)
    np.testing.assert_allclose(outcomes.reward[:LENGTH].T, reward, **close)
    # From the same start with the same actions, different physics end in different states.
    same_start = jax.tree.map(lambda x: np.repeat(x[:1], NUM_ENVS, axis=0), start)
    obs, _ = play(gravity, same_start, actions[:LENGTH].swapaxes(0, 1))
    ends = np.asarray(obs)[:, -1]
    gaps = np.abs(ends[:, None] - ends[None]).max(axis=-1) + np.eye(NUM_ENVS)
    assert gaps.min() > 10 * close["atol"]


def test_sys_of_the_wrapped_environment_is_unchanged(rollout):
    single, original, *_ = rollout
    assert single.sys is original
    assert not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(single.sys))


def test_sys_is_restored_after_an_error():
    single = custom_envs.Discrete()
    env = randomize.Randomized(single, scale_speed)
    original, state = single.sys, env.reset(jax.random.key(0))
    with pytest.raises(TypeError):
        env.step(state.replace(obs="not an observation"), 0)
    assert single.sys is original


def test_custom_environment_is_randomized():
    env = randomize.Randomized(custom_envs.Discrete(), scale_speed)
    states = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 5))
    (speed,) = states.info["randomization"]
    assert len(np.unique(speed)) == 5
    after = jax.vmap(env.step)(states, jnp.zeros(5, jnp.int32))
    np.testing.assert_array_equal(after.obs[:, 0], speed)


def test_link_masses_can_be_randomized():
    def scale_mass(sys, key):
        mass = sys.link.inertia.mass * jax.random.uniform(key, minval=0.5, maxval=2.0)
        return sys.tree_replace({"link.inertia.mass": mass})

    single = _pendulum()
    env = randomize.Randomized(single, scale_mass)
    state = jax.eval_shape(env.reset, jax.random.PRNGKey(0))
    assert [leaf.shape for leaf in state.info["randomization"]] == [
        single.sys.link.inertia.mass.shape
    ]


def test_sizes_match_the_wrapped_environment():
    single = custom_envs.Discrete()
    env = randomize.Randomized(single, scale_speed)
    sizes = single.action_size, single.observation_size
    assert (env.action_size, env.observation_size) == sizes
    assert env.unwrapped is single
    assert randomize.Randomized(_pendulum(), tilt_gravity).backend == "spring"


def test_action_space_and_time_limit_match_the_wrapped_env():
    task = config.TaskConfig(randomize=f"{__name__}:scale_speed")
    env = factory.build(config.TrainConfig(env="tests.helpers.custom_envs:Discrete", task=task))
    assert env.spec.action == (3, True)
    assert env.episode_length == 7


def test_environment_without_sys_is_rejected():
    with pytest.raises(errors.UserError, match="--task.randomize: .* no `sys`"):
        randomize.Randomized(probes.Counter(), tilt_gravity)


@pytest.mark.parametrize(
    "unchanged", [lambda sys, key: sys, lambda sys, key: sys.replace(gravity=sys.gravity)]
)
def test_function_that_changes_nothing_is_rejected(unchanged):
    with pytest.raises(errors.UserError, match="--task.randomize: .*unchanged"):
        randomize.Randomized(_pendulum(), unchanged)


@pytest.mark.parametrize(
    "wrong, complaint",
    [
        (lambda sys, key: None, "must return a Physics with the structure .* not a NoneType"),
        (lambda sys, key: (scale_speed(sys, key), sys), "`sys`, not a tuple"),
        (
            lambda sys, key: custom_envs.Physics(jax.random.uniform(key, (5,)), sys.width),
            r"turned an array \(\) of `sys` into one \(5,\)",
        ),
    ],
)
def test_function_with_a_wrong_return_value_is_rejected(wrong, complaint):
    with pytest.raises(errors.UserError, match=f"--task.randomize: .*{complaint}"):
        randomize.Randomized(custom_envs.Discrete(), wrong)


def test_non_callable_is_rejected():
    task = config.TaskConfig(randomize="tests.helpers.custom_envs:NOT_CALLABLE")
    with pytest.raises(errors.UserError, match="NOT_CALLABLE' is int, not a class or function"):
        factory.build(config.TrainConfig(env="tests.helpers.custom_envs:Discrete", task=task))


def _with_physics(kind):
    env = kind()
    env.sys = custom_envs.Discrete().sys
    return randomize.Randomized(env, scale_speed)


def test_curriculum_reaches_the_wrapped_environment():
    env = vector_env.VectorEnv(_with_physics(custom_envs.Widening), 2, 4, pool_size=3)
    pool = env.sample_pool(jax.random.key(0), env.first_curriculum)
    np.testing.assert_array_equal(pool.obs, np.full((3, 1), 0.25))


def test_trials_use_the_original_physics():
    env = vector_env.VectorEnv(_with_physics(custom_envs.Drill), 3, 12, trials=True)
    state = env.reset(jax.random.key(0))
    (speed,) = env.brax_state(state.packed).info["randomization"]
    np.testing.assert_array_equal(speed, np.ones(3))
    _, outcome = env.advance(state, jnp.zeros((3, 1)))
    assert outcome.reward.shape == (3,)
