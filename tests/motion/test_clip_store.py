"""A library that is larger than the device: bounded memory, and the same motion as without."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.config import MotionConfig
from jaxrl.envs.tasks import motion_env
from jaxrl.envs.tasks.imitation import Imitation
from jaxrl.envs.tasks.streamed_imitation import StreamedImitation
from jaxrl.evaluation.episodes import Episodes
from jaxrl.motion import clip_sampling, library, synthetic
from jaxrl.motion.clip import Plan
from jaxrl.motion.clip_store import ClipStore
from jaxrl.motion.humanoid import Humanoid
from jaxrl.programs.memory_estimate import num_bytes

QUERY = jax.jit(library.query, static_argnames="captured")


def _clips(bones, number, longest=8):
    """Return clips of 3 to `longest` frames, each somewhere else."""
    whole = synthetic.stepping(bones)
    for i in range(number):
        qpos = whole.qpos[i % 40 : i % 40 + 3 + i % (longest - 2)].copy()
        qpos[:, 0] += 0.01 * i
        yield whole._replace(name=f"clip{i}", qpos=qpos, loops=False)


def test_ten_thousand_clips_take_the_memory_of_the_resident_ones(bones, model):
    store = ClipStore(_clips(bones, 10_000), model, resident=16)
    env = StreamedImitation(MotionConfig(max_clips=16), Humanoid(model, 30.0, 3), store)
    frames = store.frames
    assert len(frames) == 10_000 and store.capacity == 16 * 8
    assert store.num_bytes == 4 * model.nq * frames.sum() < 10 * 2**20
    # A frame on the device: qpos, qvel, 13 numbers of each body, and the servos' offsets.
    per_frame = 4 * (model.nq + model.nv + 13 * (model.nbody - 1) + model.nu)
    first = env.first_curriculum()
    resident = num_bytes(env.shared_arrays(first))
    assert resident == store.capacity * per_frame + 16 * 4 * 4 < 2**18
    assert resident < store.num_bytes / 10
    later = env._next_set(first.sampling.replace(evaluations=np.int32(7)))
    assert set(later.clips.tolist()) != set(first.clips.tolist())
    shapes = [jax.tree.map(np.shape, env.shared_arrays(each)) for each in (first, later)]
    assert shapes[0] == shapes[1]
    structures = [jax.tree.structure(env.shared_arrays(each)) for each in (first, later)]
    assert structures[0] == structures[1]  # one compiled program serves both
    # What training saves is a few numbers of each clip.
    assert num_bytes(first) < 10 * 10_000


@pytest.mark.parametrize("planned", [False, True])
def test_resident_clips_move_as_in_a_library_of_all(bones, model, planned):
    clips = list(_clips(bones, 12))
    if planned:
        rng, count = np.random.default_rng(0), len(clips[5].qpos)
        qvel, feedforward = rng.normal(size=(count, model.nv)), rng.normal(size=(count, model.nu))
        clips[5] = clips[5]._replace(plan=Plan(clips[5].qpos + 0.01, qvel, feedforward, 3))
    whole, store = library.build(clips, model), ClipStore(clips, model, resident=3)
    numbers, weights = np.int32([2, 5, 11]), np.float32([0.5, 0.3, 0.2])
    resident = jax.tree.map(jnp.asarray, store.load(numbers, weights)).library
    assert (resident.captured is None) == (not planned)
    slots, time = jnp.repeat(jnp.arange(3), 4), jnp.tile(jnp.asarray([0.0, 0.03, 0.1, 9.0]), 3)
    for captured in (False, True):
        found = QUERY(resident, slots, time, captured=captured)
        expected = QUERY(whole, jnp.asarray(numbers)[slots], time, captured=captured)
        for name, a, b in zip(found._fields, found, expected, strict=True):
            np.testing.assert_allclose(a, b, atol=2e-4, err_msg=name)
    offsets = library.feedforward(resident, slots, time)
    expected = library.feedforward(whole, jnp.asarray(numbers)[slots], time)
    np.testing.assert_allclose(offsets, expected, atol=1e-6)
    np.testing.assert_allclose(
        library.duration(resident, slots[::4]), (store.frames[numbers] - 1) / 30
    )


def test_functions_use_the_resident_clips_they_are_given(bones, model):
    humanoid = Humanoid(model, 30.0, 3)
    env = StreamedImitation(MotionConfig(), humanoid, ClipStore(_clips(bones, 12), model, 3))
    resident = env.store.load(np.int32([7, 8, 9]), np.float32([0.0, 1.0, 0.0]))
    plain = env.with_trials((7, 8, 9))
    assert isinstance(plain, Imitation) and plain.trial_names == ("clip7", "clip8", "clip9")
    keys = jax.random.split(jax.random.key(0), 16)
    start = jax.jit(jax.vmap(lambda key, given: env.at(given).sample_start(key), (0, None)))
    place = start(keys, resident)
    assert set(np.asarray(place["clip"])) == {1}
    at = jax.jit(jax.vmap(lambda given, where: env.at(given).reference(where), (None, 0)))
    expected = jax.jit(jax.vmap(plain.reference))(place)
    for a, b in zip(at(resident, place), expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_failures_of_resident_clips_decide_on_the_next_set(bones, model):
    humanoid = Humanoid(model, 30.0, 3)
    store = ClipStore(_clips(bones, 12), model, 3)
    env, other = (StreamedImitation(MotionConfig(), humanoid, store, seed) for seed in (0, 1))
    first, position = env.first_curriculum(), np.zeros((9, 3, 15, 3), np.float32)
    far = position.copy()
    far[1, 2] = 1.0
    trace = {"position": far, "reference": position, "captured": position}
    trace |= {"clip": np.tile(first.clips, (9, 1)), "success_bodies": np.ones((9, 3, 15), bool)}
    episodes = Episodes(np.zeros(3), np.int32([2, 2, 3]), None, trace)
    after, values = env.update_curriculum_from_trials(first, episodes)
    expected = np.ones(12)
    expected[first.clips] = [0.9, 0.9, 1.9]
    np.testing.assert_allclose(after.sampling.failures, expected)
    assert values["failed_clips"] == 1
    assert values["new_clips"] == len(set(after.clips.tolist()) - set(first.clips.tolist()))
    again, _ = env.update_curriculum_from_trials(first, episodes)
    jax.tree.map(np.testing.assert_array_equal, after, again)  # a resume chooses the same
    sets = [each.first_curriculum().clips.tolist() for each in (env, other)]
    assert sets[0] != sets[1]  # seeds choose others
    names = [row["name"] for row in env.trial_report(episodes).table]
    assert names == [store.names[i] for i in first.clips]
    np.testing.assert_array_equal(env.trial_success(episodes), [True, True, False])


def test_sets_are_chosen_by_weight_without_bias():
    """Over many sets each clip is sampled in proportion to its weight, also one always there."""
    weights = np.float64([0.4, 0.2, 0.1, 0.1, 0.1, 0.06, 0.04])
    rng, sampled, present = np.random.default_rng(0), np.zeros(7), np.zeros(7)
    for _ in range(4000):
        clips, inside = clip_sampling.choose_set(weights, 3, rng)
        assert len(set(clips)) == 3 and inside.sum() == pytest.approx(1.0)
        present[clips] += 1 / 4000
        sampled[clips] += inside / 4000
    np.testing.assert_allclose(present, [1.0, 2 / 3, 1 / 3, 1 / 3, 1 / 3, 0.2, 2 / 15], atol=0.03)
    np.testing.assert_allclose(sampled, weights, atol=0.01)
    assert clip_sampling.choose_set(np.zeros(5), 4, rng)[0].size == 4
    assert clip_sampling.choose_set(np.float64([1, 0, 0, 0]), 2, rng)[0].size == 2


def test_absent_clips_keep_their_failures():
    state = clip_sampling.init(4, failures=1.0)
    failed, played = jnp.asarray([True, False]), jnp.asarray([3, 1])
    after = clip_sampling.update(state, failed, floor=0.0, decay=0.5, played=played)
    np.testing.assert_allclose(after.failures, [1.0, 0.5, 1.0, 1.5])
    np.testing.assert_allclose(after.weights, np.float64([1.0, 0.5, 1.0, 1.5]) / 4)


def test_small_libraries_need_no_store():
    assert motion_env.load_store(MotionConfig(max_clips=1)) is None  # one clip is generated
    config = MotionConfig(max_clips=3, crop_seconds=0.5)
    _, _, store = motion_env.load_store(config)
    assert store.names == tuple(f"stepping[{i}]" for i in range(4)) and store.resident == 3
