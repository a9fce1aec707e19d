"""Random streams: no key is used twice in a run or by the commands that evaluate it."""

from collections import Counter

import flax.linen as nn
import jax
import numpy as np
import pytest

from jaxrl import programs, train
from jaxrl.algorithms import registry as algorithms
from jaxrl.algorithms.policy import PolicyParams
from jaxrl.learning import normalizer
from jaxrl.policies import load
from jaxrl.programs import device, gymnasium
from jaxrl.utils import streams
from tests.helpers import tiny

# Functions that consume a key; split and fold_in only derive new ones.
CONSUMERS = ("uniform", "normal", "bits", "randint", "categorical", "bernoulli", "gumbel")
DRILL = "tests.helpers.custom_envs:Drill"


@pytest.fixture
def used(monkeypatch):
    """Count how often every key is used, also inside compiled programs."""
    found: Counter = Counter()

    def count(key):
        typed = jax.numpy.issubdtype(key.dtype, jax.dtypes.prng_key)
        data = jax.random.key_data(key) if typed else key
        jax.debug.callback(lambda x: found.update(map(bytes, np.reshape(x, (-1, 2)))), data)

    def counting(function):
        def counted(key, *arguments, **settings):
            count(key)
            return function(key, *arguments, **settings)

        return counted

    for name in CONSUMERS:
        monkeypatch.setattr(jax.random, name, counting(getattr(jax.random, name)))
    init = nn.Module.init
    monkeypatch.setattr(
        nn.Module, "init", lambda module, key, *x: count(key) or init(module, key, *x)
    )
    return found


def _assert_distinct(used, at_least):
    jax.effects_barrier()
    assert len(used) >= at_least
    assert [times for times in used.values() if times > 1] == []


def test_fold_in_yields_the_same_keys_as_split():
    """Hence every key must have a single consumer."""
    key = jax.random.key(3)
    folded = [jax.random.key_data(jax.random.fold_in(key, i)) for i in range(4)]
    np.testing.assert_array_equal(folded, jax.random.key_data(jax.random.split(key, 4)))


def test_every_stream_and_number_has_a_distinct_key():
    keys = [
        streams.key(seed, stream, number)
        for seed in range(3)
        for stream in range(9)
        for number in range(5)
    ]
    assert len({bytes(np.asarray(jax.random.key_data(key))) for key in keys}) == len(keys)


def test_a_run_uses_no_key_twice(used):
    flags = [*tiny.FLAGS, "--env", DRILL, "--backend", "None", "--eval.no-deterministic"]
    flags += ["--motion.no-resample-deterministic", "--ppo.update-epochs", "1"]
    config = train._parse([*flags, "--task.episode-length", "8"]).config
    built = programs.build(config)
    executor = device.compile_programs(built)
    state = executor.init_state()
    for cycle in range(2):
        state, _ = executor.run_cycle(state, cycle)
    params = built.algorithm.policy_params(state.learner)
    executor.evaluate(params, 2)
    executor.evaluate_trials(params, 2)
    _assert_distinct(used, 50)


def test_a_gymnasium_run_uses_no_key_twice(used):
    flags = (
        "gym-cartpole --env gym:tests.helpers.toys:Cut-v0 --devices 1 --num-envs 4 --iterations 1 "
    )
    flags += "--ppo.rollout-length 8 --ppo.num-minibatches 2 --ppo.update-epochs 1 "
    flags += (
        "--network.hidden 4 --network.critic-hidden 4 --eval.num-envs 2 --eval.no-deterministic"
    )
    executor = gymnasium.GymnasiumExecutor(programs.build(train._parse(flags.split()).config))
    state = executor.init_state()
    params = executor.program.algorithm.policy_params(state.learner)
    for number in range(2):
        executor.evaluate(params, number)
        state, _ = executor.run_cycle(state, number)
        params = executor.program.algorithm.policy_params(state.learner)
    executor.close()
    _assert_distinct(used, 30)


def test_evaluation_commands_use_other_keys_than_training(used):
    """Both have the same seed by default."""
    config = train._parse(tiny.FLAGS).config
    built = programs.build(config)
    networks = algorithms.build_networks(config, built.env.spec)
    params = networks.actor.init(jax.random.key(99)), normalizer.init(built.env.spec.obs)
    policy = load._bind(networks, PolicyParams(*params), built.env.spec, {})
    jax.jit(built.env.sample_pool)(streams.key(config.seed, streams.INIT))
    options = {"episodes": 4, "seed": config.seed, "deterministic": False, "env": built.env}
    load.run_episodes(policy, config, **options)
    _assert_distinct(used, 13)
