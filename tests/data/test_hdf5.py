"""Reading recorded episodes: layouts, order, splits, and errors in files."""

import os
import pickle

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.data import dataset, hdf5
from jaxrl.data.hdf5 import Episode, EpisodeRef
from jaxrl.envs.tasks.probes import Success
from jaxrl.envs.vector_env import VectorEnv
from jaxrl.errors import UserError
from jaxrl.evaluation import recording


def _episode(steps, start=0.0):
    state = np.arange(steps + 1, dtype=np.float32)[:, None] + start + np.zeros(3, np.float32)
    action = np.full((steps, 2), 0.5, np.float32)
    reward = np.arange(steps, dtype=np.float32) + start
    return Episode({"state": state[:-1]}, {"state": state[1:]}, action, reward)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "data.hdf5"
    episodes = [_episode(3 + i, 10.0 * i) for i in range(12)]
    hdf5.write(path, episodes, {"env_name": "x"}, {"train": [2, 11], "valid": [0]})
    return path


def test_episodes_round_trip_in_numeric_order(file):
    found = hdf5.list_episodes(file)
    assert [ref.demo for ref in found] == [f"demo_{i}" for i in range(12)]  # 2 before 11
    for i, ref in enumerate(found):
        episode, expected = hdf5.read(ref), _episode(3 + i, 10.0 * i)
        for a, b in zip(episode, expected, strict=True):
            np.testing.assert_equal(a, b)
    assert [ref.demo for ref in hdf5.list_episodes(file, "train")] == ["demo_2", "demo_11"]
    with h5py.File(file) as handle:
        assert handle["data"].attrs["total"] == sum(range(3, 15))


def test_recordings_distinguish_truncation_from_termination(tmp_path):
    """Some of these episodes terminate exactly at the time limit."""
    env = VectorEnv(Success(1, 4), num_envs=16, episode_length=3, random_first_age=False)

    def policy(params, obs, carry, key):
        return jnp.ones(env.rows, jnp.int32), carry, {}

    played = recording.player(env, policy, (), ())(jax.random.key(0), 0.0)
    ended = [bool(e.terminated) for e in played]
    assert ended == [e.reward[-1] == 1.0 for e in played]
    assert 3 in {len(e.reward) for e in played if e.terminated} and not all(ended)
    path = tmp_path / "data.hdf5"
    hdf5.write(path, played, {}, {})
    for ref, episode in zip(hdf5.list_episodes(path), played, strict=True):
        with h5py.File(path) as handle:
            demo = handle["data"][ref.demo]
            assert not demo["dones"][:-1].any() and not demo["truncated"][:-1].any()
            assert demo["dones"][-1] == episode.terminated == (not demo["truncated"][-1])
        assert hdf5.read(ref).terminated == episode.terminated
    data = dataset.scan(path, keys=(), part=None, holdout=0.0, chunk_size=1000)
    ring, _ = data.chunk(0)
    assert ring.steps.terminated.sum() == sum(ended)


def test_libero_layout_without_next_obs(tmp_path):
    """LIBERO's layout: several keys, images, uint8 rewards, no next observations."""
    path = tmp_path / "task_demo.hdf5"
    images = np.random.default_rng(0).integers(0, 256, (4, 8, 8, 3)).astype(np.uint8)
    with h5py.File(path, "w") as handle:
        demo = handle.create_group("data/demo_0")
        demo["actions"] = np.zeros((4, 7))
        demo["rewards"] = np.array([0, 0, 0, 1], np.uint8)
        demo["dones"] = np.array([0, 0, 0, 1], np.uint8)
        demo["obs/agentview_rgb"] = images
        demo["obs/joint_states"] = np.arange(28.0).reshape(4, 7)
        demo["obs/ee_states"] = np.zeros((4, 6))
        demo["obs/gripper"] = np.arange(4.0)
    episode = hdf5.read(EpisodeRef(path, "demo_0"), ("agentview_rgb", "joint_states"))
    assert set(episode.obs) == {"agentview_rgb", "joint_states"}
    assert episode.obs["agentview_rgb"].dtype == np.uint8
    np.testing.assert_array_equal(episode.next_obs["agentview_rgb"], images[[1, 2, 3, 3]])
    np.testing.assert_array_equal(episode.next_obs["joint_states"][:, 0], [7, 14, 21, 21])
    np.testing.assert_array_equal(episode.reward, [0, 0, 0, 1])
    gripper = hdf5.read(EpisodeRef(path, "demo_0"), ("gripper",)).obs["gripper"]
    np.testing.assert_array_equal(gripper, [[0], [1], [2], [3]])


def _change(file, name, value):
    with h5py.File(file, "a") as handle:
        del handle[name]
        if value is not None:
            handle[name] = value


@pytest.mark.parametrize(
    "name, value, complaint",
    [
        ("data/demo_3/rewards", None, "demo_3: 'rewards' is missing"),
        ("data/demo_3/obs/state", None, "demo_3: 'obs/state' is missing"),
        ("data/demo_3/obs", None, "demo_3: 'obs' is missing"),
        ("data/demo_3/actions", np.zeros((5, 2)), "'actions' has 5 steps, but 'rewards' has 6"),
        ("data/demo_3/actions", np.zeros((6, 4)), "'actions' has 4 values, others have 2"),
        ("data/demo_3/obs/state", np.full((6, 3), np.nan), "'obs/state' is not finite at step 0"),
        ("data/demo_3/obs/state", np.full((6, 3), 1e300), "'obs/state' is not finite at step 0"),
        ("data/demo_3/rewards", np.full(6, -1e300), "'rewards' is not finite at step 0"),
        ("data/demo_3/obs/state", np.full((6, 3), 1e30), "'obs/state' has values too large"),
        ("data/demo_3/next_obs/state", np.zeros((6, 2)), r"next_obs/state' is \[2\], but.*\[3\]"),
        ("data/demo_3", np.zeros(3), "demo_3.* cannot be read"),
        ("data/demo_3/obs", np.zeros(3), "demo_3.* cannot be read"),
        ("data", np.zeros(3), "cannot be read"),
        ("data/demo_3/rewards", np.zeros((6, 1)), r"'rewards' has the shape \(6, 1\)"),
        ("data/demo_3/rewards", np.zeros(0), "demo_3: 'rewards' has no steps"),
        ("data/demo_3/rewards", np.array([b"a"] * 6), "not numbers"),
        ("data/demo_3/obs/state", np.zeros((6, 4, 4, 1)), "neither a vector nor an image"),
        ("data", None, "no group 'data'"),
    ],
)
def test_invalid_datasets_are_reported_by_name(file, name, value, complaint):
    _change(file, name, value)
    with pytest.raises(UserError, match=complaint) as error:
        _scan(file, holdout=0.0)
    assert file.name in str(error.value) or "--data.obs-keys" in str(error.value)


def test_empty_observations_are_rejected(tmp_path):
    path = tmp_path / "blind.hdf5"
    hdf5.write(path, [_episode(4)._replace(obs={}, next_obs={})], {}, {})
    with h5py.File(path, "a") as handle:
        handle.create_group("data/demo_0/obs")
    with pytest.raises(UserError, match="blind.hdf5: demo_0: 'obs' is empty"):
        _scan(path)


@pytest.mark.parametrize("part", [None, "train"])
def test_corrupt_bytes_raise_only_user_errors(file, part):
    """Eight bytes are changed at many offsets: the file is read, or rejected by name."""
    whole, random, refused = file.read_bytes(), np.random.default_rng(0), 0
    for at in range(0, len(whole) - 8, 1009):
        damaged = bytearray(whole)
        damaged[at : at + 8] = random.bytes(8)
        file.write_bytes(damaged)
        try:
            _scan(file, part=part)
        except UserError as error:
            refused += 1
            assert file.name in str(error) or "--" in str(error)
    assert refused > 1


def test_shape_mismatch_reports_both_shapes(file):
    with h5py.File(file, "a") as handle:
        for part in ("obs", "next_obs"):
            del handle[f"data/demo_3/{part}/state"]
            handle[f"data/demo_3/{part}/state"] = np.zeros((6, 2))
    with pytest.raises(UserError, match=r"demo_3: 'obs/state' is \(2,\), earlier.*\(3,\)"):
        _scan(file)


@pytest.mark.parametrize("name", ["actions", "rewards", "obs/state", "next_obs/state"])
def test_oversized_datasets_are_rejected_before_reading(file, name):
    """A small file may declare any size: unwritten data has a fill value."""
    with h5py.File(file, "a") as handle:
        del handle[f"data/demo_3/{name}"]
        handle.create_dataset(f"data/demo_3/{name}", (2**38,), np.uint8, chunks=(2**20,))
    assert file.stat().st_size < 2**20
    message = rf"demo_3: '{name}', uint8\[274877906944\], is 256.0 GiB, too large to be read"
    with pytest.raises(UserError, match=message):
        hdf5.read(EpisodeRef(file, "demo_3"))


def test_oversized_masks_are_rejected(file):
    with h5py.File(file, "a") as handle:
        handle.create_dataset("mask/huge", (2**38,), "S8", chunks=(2**20,))
    with pytest.raises(UserError, match="mask 'huge' is 2,048.0 GiB"):
        hdf5.list_episodes(file, "huge")


def test_external_data_is_not_read(file, tmp_path):
    (tmp_path / "secret").write_bytes(bytes(24))
    with h5py.File(file, "a") as handle:
        del handle["data/demo_3/rewards"]
        parts = [(str(tmp_path / "secret"), 0, 24)]
        handle.create_dataset("data/demo_3/rewards", (6,), "<f4", external=parts)
    with pytest.raises(UserError, match="'rewards' is stored in other files, which are never read"):
        hdf5.read(EpisodeRef(file, "demo_3"))


def test_pipes_in_a_folder_are_skipped(file):
    os.mkfifo(file.with_name("pipe.hdf5"))
    assert hdf5.files(file.parent) == [file]


def test_unreadable_files_are_rejected(tmp_path, file):
    whole = file.read_bytes()
    (tmp_path / "cut.hdf5").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "pickled.hdf5").write_bytes(pickle.dumps({"data": 1}))
    for name in ("cut.hdf5", "pickled.hdf5"):
        with pytest.raises(UserError, match=f"{name}' cannot be read.*Pickles are never read"):
            hdf5.list_episodes(tmp_path / name)
    with pytest.raises(UserError, match="no such file"):
        hdf5.list_episodes(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="a folder without .hdf5 files"):
        hdf5.list_episodes(tmp_path / "empty")
    with pytest.raises(UserError, match="has no mask 'tran'. Did you mean 'train'"):
        hdf5.list_episodes(file, "tran")


def _scan(path, **changes):
    settings = {"keys": (), "part": None, "holdout": 0.25, "chunk_size": 40}
    return dataset.scan(path, **settings | changes)


def test_scan_splits_a_folder_into_chunks(tmp_path, file):
    other = [_episode(5, 100.0)]
    hdf5.write(tmp_path / "later.hdf5", other, {}, {})
    data = _scan(tmp_path)
    assert (len(data.training), len(data.held_out)) == (10, 3)
    assert not set(data.training) & set(data.held_out)
    assert [ref for chunk in data.chunks for ref in chunk] == data.training
    sizes = [sum(data.lengths[ref] for ref in chunk) for chunk in data.chunks]
    assert len(sizes) > 1 and max(sizes) == data.chunk_steps <= 40
    states = np.concatenate([hdf5.read(ref).obs["state"] for ref in data.training])
    np.testing.assert_allclose(data.obs_stats.mean, states.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(data.obs_stats.variance, states.var(axis=0), rtol=1e-4)
    for number, chunk in enumerate(data.chunks):
        ring, index = data.chunk(number)
        assert ring.steps.reward.shape == (1, data.chunk_steps)
        assert int(index.end[0]) == sizes[number] and int(index.first[0]) == 0
        at = 0
        for ref in chunk:
            episode = hdf5.read(ref)
            steps = len(episode.reward)
            np.testing.assert_array_equal(ring.steps.reward[0, at : at + steps], episode.reward)
            np.testing.assert_array_equal(index.age[0, at : at + steps], np.arange(steps))
            assert (
                index.length[0, at] == steps and index.episode_return[0, at] == episode.reward.sum()
            )
            at += steps
    with pytest.raises(UserError, match="less than the longest episode, 14 steps"):
        _scan(tmp_path, chunk_size=13)


def test_holdout_depends_on_names_only(tmp_path, file):
    """The folder does not matter, and every file contributes its fraction."""
    held_out = {str(ref) for ref in _scan(file).held_out}
    (tmp_path / "elsewhere").mkdir()
    moved = file.rename(tmp_path / "elsewhere" / file.name)
    assert {str(ref) for ref in _scan(moved).held_out} == held_out
    hdf5.write(moved.with_name("later.hdf5"), [_episode(5)] * 40, {}, {})
    both = _scan(moved.parent)
    assert len(both.held_out) == 13 and len({ref.file for ref in both.held_out}) == 2
    numbers = [int(ref.demo[5:]) for ref in both.held_out if ref.file != moved]
    assert max(numbers) > 20  # spread, not the first ones


def test_constant_returns_are_detected(tmp_path, file):
    assert _scan(file).returns_vary()
    same = [_episode(4) for _ in range(4)]
    hdf5.write(tmp_path / "same.hdf5", same, {}, {})
    assert not _scan(tmp_path / "same.hdf5").returns_vary()


def test_discrete_actions_stay_discrete(tmp_path):
    """Our recordings declare their action space; discrete actions are read as int32."""
    episode = _episode(4)._replace(action=np.array([[0], [2], [1], [2]], np.float32))
    metadata = {"action": {"size": 3, "discrete": True}}
    hdf5.write(tmp_path / "discrete.hdf5", [episode, episode], metadata, {})
    data = _scan(tmp_path / "discrete.hdf5")
    assert data.spec.action == (3, True)
    ring, _ = data.chunk(0)
    assert ring.steps.action.dtype == np.int32
    np.testing.assert_array_equal(ring.steps.action[0, :4], [0, 2, 1, 2])


def _write_actions(path, size, actions, discrete=True):
    action = np.array(actions, np.float32)[:, None]
    episode = _episode(len(actions))._replace(action=action)
    metadata = {"action": {"size": size, "discrete": discrete}} if size else {}
    hdf5.write(path, [episode] * 2, metadata, {})


@pytest.mark.parametrize(
    "size, discrete, kinds",
    [
        (5, True, "2 discrete ones.* 5 discrete ones"),
        (1, False, "2 discrete ones.*continuous"),
        (None, False, "continuous"),
    ],
)
def test_files_with_different_action_spaces_are_rejected(tmp_path, size, discrete, kinds):
    _write_actions(tmp_path / "a.hdf5", 2, [0, 1, 0])
    _write_actions(tmp_path / "b.hdf5", size, [0, 1, 1], discrete)
    with pytest.raises(UserError, match=kinds) as error:
        _scan(tmp_path)
    assert "'a.hdf5'" in str(error.value) and "'b.hdf5'" in str(error.value)


@pytest.mark.parametrize("wrong", [3, -1, 0.5])
def test_discrete_actions_out_of_range_are_rejected(tmp_path, wrong):
    _write_actions(tmp_path / "a.hdf5", 3, [0, 2, wrong])
    with pytest.raises(UserError, match=rf"demo_0: 'actions' is {wrong} at step 2.*0 to 2"):
        _scan(tmp_path)


def test_invalid_action_metadata_is_rejected(tmp_path):
    _write_actions(tmp_path / "a.hdf5", "three", [0, 2, 1])
    with pytest.raises(UserError, match=r"a.hdf5'.*'size': 'three'"):
        _scan(tmp_path)
