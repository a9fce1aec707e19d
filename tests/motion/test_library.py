"""The clip library: velocities, interpolation, rotated references and sampling."""

from functools import partial

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from jaxrl.errors import UserError
from jaxrl.motion import library, mirroring, synthetic
from jaxrl.motion.amp_features import AMPFeatures
from jaxrl.motion.clip import Plan
from jaxrl.motion.formats import native

QUERY = jax.jit(library.query)  # jitted as a whole, which is faster than op by op
QUERY_CAPTURED = jax.jit(partial(library.query, captured=True))


@pytest.fixture(scope="module")
def two_clips(bones, model):
    """A clip that moves and turns, and a shorter one."""
    clip = synthetic.stepping(bones, fps=60.0)
    time = np.arange(len(clip.qpos)) / clip.fps
    qpos = clip.qpos.copy()
    qpos[:, 0] += 0.5 * time
    qpos[:, 3], qpos[:, 6] = np.cos(0.4 * time), np.sin(0.4 * time)  # 0.8 rad/s about z
    short = synthetic.stepping(bones, seconds=1.0)
    return library.build([clip._replace(qpos=qpos), short], model)


def test_clips_lie_end_to_end(two_clips):
    assert two_clips.names == ("stepping", "stepping")
    assert two_clips.reference.position.shape == (61 + 31, 15, 3)
    np.testing.assert_array_equal(two_clips.frames, [61, 31])
    assert [two_clips.rows(i) for i in (0, 1)] == [slice(0, 61), slice(61, 92)]
    np.testing.assert_allclose(library.duration(two_clips, jnp.arange(2)), [2.0, 1.0])


def test_velocities_match_finite_differences(two_clips):
    """Of positions for the bodies; for the root, in the world and in its own frame."""
    reference = jax.tree.map(lambda x: np.asarray(x[:61], np.float64), two_clips.reference)
    expected = (reference.position[2:] - reference.position[:-2]) * two_clips.fps / 2
    np.testing.assert_allclose(reference.velocity[2:-2], expected[1:-1], atol=0.06)
    assert np.abs(expected).max() > 0.8
    np.testing.assert_allclose(reference.qvel[:, :3], reference.velocity[:, 0], atol=1e-6)
    np.testing.assert_allclose(reference.qvel[:, 5], 0.8, atol=1e-5)
    np.testing.assert_allclose(reference.spin[:, 0, 2], 0.8, atol=1e-5)


def test_velocities_match_mujoco(two_clips, model, bones):
    """A simulator set to qpos and qvel has the velocities of the library."""
    data = mujoco.MjData(model)
    i, eps = 17, 1e-5
    data.qpos[:] = np.asarray(two_clips.reference.qpos[i], np.float64)
    mujoco.mj_kinematics(model, data)
    before = data.xpos[1:].copy()
    mujoco.mj_integratePos(model, data.qpos, np.float64(two_clips.reference.qvel[i]), eps)
    mujoco.mj_kinematics(model, data)
    moved = (data.xpos[1:] - before) / eps
    np.testing.assert_allclose(two_clips.reference.velocity[i], moved, atol=1e-3)


def test_queries_at_frame_times_return_the_frames(two_clips):
    clip = jnp.asarray([0, 0, 1, 1, 0, 1])
    time = jnp.asarray([0.0, 30.0 / 30, 7.0 / 30, 99.0, -1.0, 1.0])
    row = two_clips.start[clip] + jnp.asarray([0, 30, 7, 30, 0, 30])
    for found in (
        QUERY(two_clips, clip, time),
        jax.jit(jax.vmap(library.query, (None, 0, 0)))(two_clips, clip, time),
    ):
        for name, values, stored in zip(found._fields, found, two_clips.reference, strict=True):
            np.testing.assert_allclose(values, stored[row], atol=2e-5, err_msg=name)


def test_queries_between_frames_interpolate(two_clips, bones):
    found = QUERY(two_clips, jnp.asarray(0), jnp.asarray(10.5 / 30))
    truth = synthetic.stepping(bones, fps=60.0).qpos[21]
    np.testing.assert_allclose(found.qpos[7:], truth[7:], atol=3e-3)
    np.testing.assert_allclose(jnp.linalg.norm(found.rotation, axis=-1), 1.0, atol=1e-6)
    np.testing.assert_allclose(found.qpos[6], np.sin(0.4 * 10.5 / 30), atol=1e-6)


def test_rotated_references_match_mujoco(two_clips, model):
    angle = jnp.asarray([0.0, 1.0, -2.5])
    reference = QUERY(two_clips, jnp.zeros(3, jnp.int32), jnp.full(3, 0.7))
    found = jax.jit(library.rotate_yaw)(reference, angle)
    np.testing.assert_allclose(found.position[0], reference.position[0], atol=1e-6)
    data, motion = mujoco.MjData(model), np.empty(6)
    for i in (1, 2):
        data.qpos[:], data.qvel[:] = found.qpos[i], found.qvel[i]
        mujoco.mj_forward(model, data)
        # The query interpolates frames, hence the tolerance.
        np.testing.assert_allclose(found.position[i], data.xpos[1:], atol=2e-3)
        for body in (0, 5, 14):
            kind = mujoco.mjtObj.mjOBJ_XBODY
            mujoco.mj_objectVelocity(model, data, kind, body + 1, motion, 0)
            np.testing.assert_allclose(found.velocity[i, body], motion[3:], atol=0.03)
            np.testing.assert_allclose(found.spin[i, body], motion[:3], atol=0.03)


def test_sampling_follows_the_weights(two_clips):
    keys = jax.random.split(jax.random.key(0), 400)
    clip, time = jax.jit(jax.vmap(library.sample, (None, 0, None)))(
        two_clips, keys, jnp.asarray([0.0, 2.0])
    )
    assert (clip == 1).all()
    assert 0 <= time.min() < 0.1 and 0.9 < time.max() <= 1.0
    clip, time = jax.jit(jax.vmap(library.sample, (None, 0)))(two_clips, keys)
    assert 0.4 < clip.mean() < 0.6
    assert (time <= library.duration(two_clips, clip)).all()


def test_library_of_all_captured_clips_is_finite(motions, model):
    built = library.build(library.load_clips(str(motions), model), model)
    assert len(built.names) == 14
    for leaf in jax.tree.leaves(built):
        assert np.isfinite(leaf).all()
    assert np.abs(built.reference.qvel).max() < 25.0
    np.testing.assert_allclose(library.duration(built, 13), 38 / 30, atol=1e-6)  # the walk


def test_loops_are_repeated_to_the_minimum_length(tmp_path, bones, model):
    for name, loops in (("a", True), ("b", False)):
        clip = synthetic.stepping(bones, seconds=1.0)._replace(loops=loops)
        native.write(tmp_path / f"{name}.npz", clip, bones)
    built = library.build(library.load_clips(str(tmp_path), model, min_seconds=2.5), model)
    np.testing.assert_array_equal(built.frames, [91, 31])


def test_parts_of_the_split_are_read(tmp_path, bones, model):
    for name in ("humanoid3d_jog", "humanoid3d_run"):
        native.write(tmp_path / f"{name}.npz", synthetic.stepping(bones, seconds=0.2), bones)
    read = partial(library.read_clips, str(tmp_path), model)
    assert [clip.name for clip in read(split="test")] == ["humanoid3d_jog"]
    assert [clip.name for clip in read(split="train")] == ["humanoid3d_run"]
    assert len(list(read())) == 2
    (tmp_path / "humanoid3d_jog.npz").unlink()
    with pytest.raises(UserError, match="has no clips of the split 'test'"):
        list(read(split="test"))


def test_planned_clip_is_queried_from_its_plan(bones, model):
    """Velocities are the plan's own; feedforward is interpolated like everything else."""
    clip = synthetic.stepping(bones, seconds=1.0)
    rng, qpos = np.random.default_rng(0), clip.qpos.copy()
    qpos[:, 2] += 0.1
    plan = Plan(qpos, rng.normal(size=(31, model.nv)), rng.normal(size=(31, model.nu)), 3)
    built = library.build([clip, clip._replace(plan=plan)], model)
    both, time = jnp.arange(2), jnp.full(2, 10.5 / 30)
    followed, captured = QUERY(built, both, time), QUERY_CAPTURED(built, both, time)
    for reference in captured:
        np.testing.assert_array_equal(reference[0], reference[1])
    np.testing.assert_allclose(followed.position[0], captured.position[0])
    np.testing.assert_allclose(
        followed.position[1] - captured.position[1], [[0, 0, 0.1]] * 15, atol=1e-6
    )
    np.testing.assert_allclose(followed.qvel[1], plan.qvel[10:12].mean(0), atol=1e-6)
    feedforward = library.feedforward(built, both, time)
    np.testing.assert_allclose(
        feedforward, [np.zeros(model.nu), plan.feedforward[10:12].mean(0)], atol=1e-6
    )


def test_clips_without_plans_share_reference_and_captured(two_clips):
    assert two_clips.reference.qpos is two_clips.captured.qpos
    assert not two_clips.planned and not np.any(two_clips.feedforward)


def test_amp_demonstrations_use_the_captured_clip(bones, model):
    """Plans may be rough, so the discriminator gets the captured clip."""
    clip, features = synthetic.stepping(bones, seconds=1.0), AMPFeatures(bones, frames=3)
    rng = np.random.default_rng(0)
    plan = Plan(clip.qpos + 0.1, rng.normal(size=(31, model.nv)), np.zeros((31, model.nu)), 3)
    draw = jax.jit(lambda built: features.demonstrations(built, jax.random.key(0), 4))
    bare, planned = (library.build([clip._replace(plan=p)], model) for p in (None, plan))
    np.testing.assert_array_equal(draw(bare), draw(planned))


def test_demonstrations_are_even_over_time(bones, model):
    """Every history of every clip is drawn equally often, whatever the lengths of the clips."""
    seconds = {"long": 2.0, "one history": 0.5, "none": 0.2, "short": 0.6}
    clips = [synthetic.stepping(bones, seconds=s)._replace(name=n) for n, s in seconds.items()]
    built, features = library.build(clips, model), AMPFeatures(bones, frames=16)
    clip, time = features.sample_times(built, jax.random.key(0), 50_000)
    frame = np.asarray(jnp.round(time * 30.0), int)
    found, counts = np.unique(np.stack([clip, frame]), axis=1, return_counts=True)
    expected = [(0, f) for f in range(15, 61)] + [(1, 15)] + [(3, f) for f in range(15, 19)]
    assert found.T.tolist() == [list(each) for each in expected]
    # 51 histories, so 980 draws of each, with a standard deviation of 31.
    assert abs(counts - 50_000 / 51).max() < 4 * 31
    share = np.bincount(np.asarray(clip), minlength=4) / 50_000
    np.testing.assert_allclose(share, [46 / 51, 1 / 51, 0, 4 / 51], atol=0.005)


def test_demonstrations_are_the_histories_at_the_sampled_times(bones, model):
    clips = [synthetic.stepping(bones, seconds=s)._replace(name=str(s)) for s in (1.0, 0.5)]
    built, features, key = library.build(clips, model), AMPFeatures(bones, 4), jax.random.key(3)
    drawn = jax.jit(lambda: features.demonstrations(built, key, 5))().reshape(5, 4, -1)
    clip, time = features.sample_times(built, jax.random.split(key)[0], 5)
    for each, i, end in zip(drawn, clip, jnp.round(time * 30.0).astype(int), strict=True):
        last = int(built.start[i] + end)
        stored = jax.tree.map(lambda x: x[last - 3 : last + 1], built.reference)  # noqa: B023
        np.testing.assert_allclose(each, features.frame(stored), atol=2e-4)


def test_half_of_the_demonstrations_are_mirrored(bones, model):
    """Of a clip that holds one history, and the right knee of whose mirror image is its left."""
    clip = synthetic.stepping(bones, seconds=0.2)
    built, features = library.build([clip], model), AMPFeatures(bones, frames=7)
    mirror = mirroring.build(bones, np.zeros(0, int))
    draw = jax.jit(lambda key: features.demonstrations(built, key, 200, mirror))
    drawn = np.asarray(draw(jax.random.key(0)))
    plain = jax.tree.map(lambda x: x[:7], built.reference)
    images = [
        np.asarray(features.frame(each)).reshape(-1) for each in (plain, mirror.reference(plain))
    ]
    near = np.stack([np.abs(drawn - image).max(axis=1) < 1e-3 for image in images])
    assert (near.sum(axis=0) == 1).all()
    assert 70 < near[1].sum() < 130


def test_frames_before_a_clips_start_are_zero(bones, model):
    built = library.build([synthetic.stepping(bones, seconds=1.0)], model)
    features = AMPFeatures(bones, frames=4)
    times = jnp.arange(6) / jnp.float32(30.0)
    histories = jax.jit(jax.vmap(lambda time: features.history(built, jnp.asarray(0), time)))(times)
    for frame, history in enumerate(histories):
        missing = max(3 - frame, 0)
        rows = np.any(np.asarray(history) != 0.0, axis=1)
        np.testing.assert_array_equal(rows, [False] * missing + [True] * (4 - missing))
        assert bool(jnp.any(features.window(history) != 0.0)) == (missing == 0)


def test_plan_at_another_frame_rate_is_rejected(bones, model):
    clip = synthetic.stepping(bones, fps=60.0)
    zeros = np.zeros((len(clip.qpos), model.nv)), np.zeros((len(clip.qpos), model.nu))
    with pytest.raises(UserError, match="planned at 60 frames per second; 30 are used"):
        library.build([clip._replace(plan=Plan(clip.qpos, *zeros, 3))], model)


def test_empty_library_is_rejected(model):
    with pytest.raises(UserError, match="at least one clip"):
        library.build([], model)


def test_duplicate_clip_names_are_rejected(tmp_path, bones, model):
    """Clips are reported and planned by name, so names must be unique."""
    native.write(tmp_path / "hop.npz", synthetic.stepping(bones), bones)
    (tmp_path / "hop.txt").write_text("{}")
    with pytest.raises(UserError, match="2 clips are called 'hop'; rename one"):
        library.load_clips(str(tmp_path), model)
