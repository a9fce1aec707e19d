"""Return decomposition: gradient steps per iteration, and episodes per batch of the reward model.

The pendulum receives its reward as one sum at the end of each episode. The preset takes 16 gradient
steps in an iteration of 16 environment steps, and a batch of its reward model has 64 steps of each
of 8 episodes. The study of the third size, steps per episode, is rrd_subsets.
"""

from jaxrl.studies import Study, smoke_configs

_BATCHES, _SIZE = "offpolicy.train_batches", "rrd.batch_size"
_STEPS = 64  # of each episode

STUDY = Study(
    preset="rrd-quick",
    variants={
        "4 gradient steps": {_BATCHES: 4},
        "32 gradient steps": {_BATCHES: 32},
        "1 episode": {_SIZE: 1 * _STEPS},
        "32 episodes": {_SIZE: 32 * _STEPS},
        "the sums themselves": {"offpolicy.reward": "env"},
        "every step's reward": {"offpolicy.reward": "env", "task.episodic_reward": False},
    },
    seeds=3,
    settings={_BATCHES: 16, _SIZE: 8 * _STEPS, "rrd.sample_size": _STEPS},
    smoke=smoke_configs.REPLAY | {"offpolicy.reward": "rrd", "task.episodic_reward": True},
)
