"""Invalid sizes, motion and AMP settings are reported with the fix."""

from dataclasses import replace

import pytest

from jaxrl.config import presets
from jaxrl.config.validate import validate


def problems(section, env="imitation", **changes):
    config = presets.get("imitate-walk")
    config = replace(config, env=env, **{section: replace(getattr(config, section), **changes)})
    return validate(config)


def test_motion_presets_are_valid():
    for name in ("imitate-walk", "imitate", "amp-walk"):
        assert validate(presets.get(f"{name}-tiny")) == []
        assert validate(presets.get(name)) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"substeps": 0}, "--motion.substeps must be at least 1, not 0."),
        ({"future": ()}, "--motion.future needs one or more values, not ()."),
        ({"max_clips": 2, "resample_interval": 0}, "--motion.max-clips needs --motion.resample-i"),
        ({"crop_seconds": 0.03}, "--motion.crop-seconds must be 0, or at least a frame"),
        ({"speeds": (2.0, 1.0)}, "--motion.speeds must be two numbers, the lower one first."),
        ({"hybrid_fraction": 1.5}, "--motion.hybrid-fraction must lie between 0 and 1"),
        ({"weights": (0.5, -0.1, 0.1, 0.1)}, "--motion.weights must be at least 0, not (0.5, -0.1"),
    ],
)
def test_numbers_out_of_range(changes, message):
    (problem,) = problems("motion", **changes)
    assert problem.startswith(message)


def test_missing_clips_are_reported(tmp_path):
    (problem,) = problems("motion", clips=tmp_path / "walk.txt")
    assert "--motion.clips" in problem and "no such file" in problem


def test_other_environments_need_no_clips(tmp_path):
    assert problems("motion", env="cartpole", clips=tmp_path / "walk.txt") == []


def test_amp_settings_out_of_range():
    assert problems("amp", weight=-1.0) == ["--amp.weight must be at least 0, not -1.0."]
    assert problems("amp", hidden=()) == ["--amp.hidden needs one or more values, not ()."]


@pytest.mark.parametrize("preset", ["sac-ant", "dqn-cartpole"])
def test_amp_needs_ppo(preset):
    config = presets.get(preset)
    (problem,) = validate(replace(config, amp=replace(config.amp, weight=1.0)))
    assert problem == f"--amp.weight is for --algo ppo, not {config.algo}."


def sized(num_envs, **ppo):
    config = presets.get("cartpole")
    return replace(config, num_envs=num_envs, devices=1, ppo=replace(config.ppo, **ppo))


def test_minibatches_can_be_given_in_steps():
    """SB3's n_envs=1, n_steps=2048, batch_size=64: single steps are shuffled."""
    config = sized(1, rollout_length=2048, batch_size=64, bptt_horizon=None)
    assert (config.ppo.num_minibatches, config.ppo.horizon) == (32, 1)
    assert validate(config) == []
    assert replace(config, num_envs=4).ppo.num_minibatches == 128
    recurrent = replace(config, network=replace(config.network, rnn="lstm"), ppo=config.ppo)
    assert recurrent.ppo.batch_size == 64


def test_recurrent_minibatches_in_steps_keep_whole_segments():
    config = presets.get("cartpole")
    ppo = replace(config.ppo, rollout_length=32, batch_size=64, bptt_horizon=None)
    network = replace(config.network, rnn="lstm")
    config = replace(config, num_envs=8, devices=1, network=network, ppo=ppo)
    assert (config.ppo.num_minibatches, config.ppo.horizon) == (4, 32)
    assert validate(config) == []


@pytest.mark.parametrize(
    "num_envs, ppo, message",
    [
        (
            1,
            {"rollout_length": 2048, "num_minibatches": 32, "bptt_horizon": None},
            "--ppo.num-minibatches 32 cannot split the 1 segment of 2,048 steps that --num-envs 1 "
            "gives on 1 device: use --ppo.num-minibatches 1, or --num-envs 32, or "
            "--ppo.bptt-horizon 64.",
        ),
        (
            8,
            {"rollout_length": 16, "batch_size": 60},
            "--ppo.batch-size 60 must divide the 128 steps of a rollout (--num-envs × "
            "--ppo.rollout-length): use 32 or 64.",
        ),
        (
            12,
            {"rollout_length": 16, "num_minibatches": 8, "bptt_horizon": None},
            "use --ppo.num-minibatches 6 or 12, or --num-envs 8 or 16, or --ppo.bptt-horizon 8.",
        ),
    ],
)
def test_minibatch_errors_list_all_fixes(num_envs, ppo, message):
    (problem,) = validate(sized(num_envs, **ppo))
    assert message in problem


@pytest.mark.parametrize(
    ("preset", "changes", "message"),
    [
        ("td3-ant", {}, "--network.sde is for ppo and sac: leave it out with --algo td3."),
        ("dqn-cartpole", {}, "--network.sde is for ppo and sac: leave it out with --algo dqn."),
        ("ant", {"fixed_std": True}, "--network.sde learns the standard deviation of its noise"),
        ("ant", {"module": "nets:build"}, "--network.sde is for jaxrl's networks"),
        ("ant", {"sde_sample_freq": 0}, "--network.sde-sample-freq must be at least 1, not 0."),
    ],
)
def test_state_dependent_exploration_names_what_it_needs(preset, changes, message):
    config = presets.get(preset)
    (problem,) = validate(replace(config, network=replace(config.network, sde=True, **changes)))
    assert problem.startswith(message)


@pytest.mark.parametrize("preset", ["ant", "sac-ant"])
def test_state_dependent_exploration_fits_ppo_and_sac(preset):
    config = presets.get(preset)
    assert validate(replace(config, network=replace(config.network, sde=True))) == []


@pytest.mark.parametrize(
    ("preset", "settings", "message"),
    [
        (
            "td3-ant",
            {"exploration_noise_min": 0.2},
            "--offpolicy.exploration-noise-min 0.2 is more than --offpolicy.exploration-noise 0.1",
        ),
        ("sac-ant", {"exploration_hold": 4}, "--offpolicy.exploration-hold: --network.sde holds"),
        ("sac-ant", {"exploration_hold": 0}, "--offpolicy.exploration-hold must be at least 1"),
        ("rrd-ant", {"normalize_reward": True}, "--offpolicy.normalize-reward scales rewards of"),
    ],
)
def test_settings_of_large_scale_name_what_they_need(preset, settings, message):
    config = presets.get(preset)
    config = replace(config, offpolicy=replace(config.offpolicy, **settings))
    with_sde = "--network.sde" in message
    config = replace(config, network=replace(config.network, sde=with_sde))
    (problem,) = validate(config)
    assert problem.startswith(message)


def test_n_step_returns_need_rewards_of_the_environment():
    config = presets.get("sac-ant")
    steps = replace(config.offpolicy, n_step=3)
    assert validate(replace(config, offpolicy=steps)) == []
    learnt = replace(config, offpolicy=replace(steps, reward="ircr"))
    assert any("--offpolicy.n-step adds up rewards" in problem for problem in validate(learnt))


def test_recorded_episodes_need_no_exploration():
    config = presets.get("sac-ant")
    data = replace(config.data, path="episodes.hdf5")
    config = replace(config, data=data, devices=1, network=replace(config.network, sde=True))
    assert any("--network.sde explores in rollouts" in problem for problem in validate(config))
