"""A file as robomimic's tools write it: several keys, doubles, sparse rewards and named parts."""

import json

import h5py
import numpy as np
import pytest

from jaxrl import train
from jaxrl.policies import load_policy
from tests.helpers import tiny

KEYS = {"object": 10, "robot0_eef_pos": 3, "robot0_eef_quat": 4, "robot0_gripper_qpos": 2}
ACTIONS = 7


def _demonstrated(obs):
    """Move towards the object and close the gripper near it."""
    towards = obs["object"][..., :3] - obs["robot0_eef_pos"]
    grip = np.sign(0.5 - np.linalg.norm(towards, axis=-1, keepdims=True))
    still = np.zeros((*towards.shape[:-1], 3))
    return np.clip(np.concatenate([0.4 * towards, still, 0.4 * grip], axis=-1), -1, 1)


def _write(path, *, episodes=40, length=25):
    rng = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["total"] = episodes * length
        env_args = {"env_name": "Lift", "type": 1, "env_kwargs": {"robots": ["Panda"]}}
        data.attrs["env_args"] = json.dumps(env_args)
        for number in range(episodes):
            demo = data.create_group(f"demo_{number}")
            demo.attrs.update(num_samples=length, model_file="<mujoco/>")
            every = {key: rng.normal(size=(length + 1, size)) for key, size in KEYS.items()}
            for key, values in every.items():
                demo[f"obs/{key}"], demo[f"next_obs/{key}"] = values[:-1], values[1:]
            demo["actions"] = _demonstrated({key: values[:-1] for key, values in every.items()})
            demo["states"] = rng.normal(size=(length, 32))
            demo["rewards"] = demo["dones"] = (np.arange(length) == length - 1).astype(np.int64)
        names = [f"demo_{number}" for number in range(episodes)]
        file["mask/train"], file["mask/valid"] = (
            np.array(names[:36], "S"),
            np.array(names[36:], "S"),
        )
    return path


@pytest.mark.learning
def test_demonstrations_of_a_robot_are_cloned(tmp_path, no_plots):
    """Actions of unseen observations follow the demonstrator, from the keys that it looks at."""
    flags = ["bc", "--data.path", str(_write(tmp_path / "lift.hdf5")), "--data.part", "train"]
    flags += ["--data.obs-keys", "object", "robot0_eef_pos", "--run-dir", str(tmp_path / "run")]
    flags += ["--network.hidden", "64", "--offpolicy.pi-lr", "0.003"]
    flags += ["--epochs", "2", "--cycles", "2", "--iterations", "10"]
    assert train.main(flags) == 0
    policy = load_policy(tmp_path / "run")
    assert policy.info["obs_keys"] == ["object", "robot0_eef_pos"]
    rng = np.random.default_rng(1)
    obs = {key: rng.normal(size=(500, KEYS[key])).astype(np.float32) for key in KEYS}
    seen = {key: obs[key] for key in policy.info["obs_keys"]}
    ours, theirs = np.asarray(policy(seen)), _demonstrated(obs)
    assert np.abs(ours - theirs)[:, :6].mean() < 0.1
    far = np.abs(np.linalg.norm(obs["object"][:, :3] - obs["robot0_eef_pos"], axis=-1) - 0.5) > 0.5
    assert np.all(np.sign(ours[far, 6]) == np.sign(theirs[far, 6]))
    name = "heldout/action_error"  # at the end of each epoch
    first, last = (row[name] for row in tiny.rows(tmp_path / "run") if name in row)
    assert last < first
