"""Planning: what is planned really happens, and follows better than servos alone."""

import itertools

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from jaxrl import evaluate, train
from jaxrl.clips import plan
from jaxrl.config import MotionConfig, TrainConfig
from jaxrl.envs.tasks import motion_env
from jaxrl.errors import UserError
from jaxrl.motion import formats, library, mppi, synthetic
from jaxrl.motion.formats import native
from jaxrl.motion.humanoid import Humanoid
from jaxrl.motion.mppi import MPPIConfig, Planner

FPS = 30.0
SMALL = MPPIConfig(samples=48, frames=6, rounds=2)


@pytest.fixture(scope="module")
def humanoid(model):
    return Humanoid(model, FPS, 3)


@pytest.fixture(scope="module")
def hop(bones, model):
    """A jump that gravity would not allow: half a second at one height, 5 cm up."""
    clip = synthetic.stepping(bones, seconds=0.5)._replace(name="hop", loops=False)
    qpos = clip.qpos.copy()
    qpos[:, 2] += np.where(np.arange(len(qpos)) < 4, 0.0, 0.05)
    return clip._replace(qpos=qpos)


@pytest.fixture(scope="module")
def shown(hop, model):
    return jax.tree.map(lambda x: np.asarray(x[0]), library.build([hop], model, FPS).captured)


@pytest.fixture(scope="module")
def planner(humanoid):
    return Planner(humanoid, SMALL)


@pytest.fixture(scope="module")
def planned(planner, shown):
    ticks = []
    made = planner.plan(shown, lambda: ticks.append(None))
    assert len(ticks) == len(shown.qpos) - 1
    return made


def _simulated(humanoid, start, targets):
    """Return the poses [F, nq] that MuJoCo itself goes through."""
    data = mujoco.MjData(humanoid.model)
    data.qpos[:], data.qvel[:] = start
    poses = [data.qpos.copy()]
    for target in targets[1:]:
        data.ctrl[:] = np.clip(target, humanoid.low, humanoid.high)
        mujoco.mj_step(humanoid.model, data, humanoid.substeps)
        poses.append(data.qpos.copy())
    return np.array(poses)


def _servo_target(humanoid, qpos, qvel):
    return np.asarray(
        jax.vmap(humanoid.servo_target)(jnp.asarray(qpos), jnp.asarray(qvel)), np.float64
    )


def test_what_is_planned_happens(humanoid, shown, planned):
    """Pushes added to the planned poses are what brings a humanoid from each to the next."""
    targets = _servo_target(humanoid, planned.qpos, planned.qvel) + planned.feedforward
    poses = _simulated(humanoid, (shown.qpos[0], shown.qvel[0]), targets)
    np.testing.assert_allclose(planned.qpos, poses, atol=2e-3)
    np.testing.assert_array_equal(planned.qpos[0], np.float64(shown.qpos[0]))


def test_looking_ahead_follows_better_than_servos_alone(humanoid, hop, shown, planned):
    aims = _servo_target(humanoid, shown.qpos, shown.qvel)
    alone = _simulated(humanoid, (shown.qpos[0], shown.qvel[0]), aims)

    def miss(poses):
        built = library.build([hop._replace(qpos=poses)], humanoid.model, FPS)
        return np.linalg.norm(built.captured.position[0] - shown.position, axis=-1).mean()

    assert miss(planned.qpos) < 0.75 * miss(alone), (miss(planned.qpos), miss(alone))


def test_every_frame_is_aimed_at_for_its_own_time(humanoid, shown, monkeypatch):
    """Step k ends in frame k; what would come after the last one does not count."""
    planner, goals = Planner(humanoid, SMALL), []

    def noted(best, body, goal, rng):
        goals.append(goal)
        return best

    monkeypatch.setattr(planner, "_improve", noted)
    planner.plan(shown)
    last = len(shown.qpos) - 1
    for step, goal in enumerate(goals, start=1):
        frames = np.minimum(step + np.arange(SMALL.frames), last)
        np.testing.assert_array_equal(goal.reference.qpos, np.float64(shown.qpos[frames]))
        np.testing.assert_allclose(
            goal.servo_target, _servo_target(humanoid, shown.qpos, shown.qvel)[frames]
        )
        assert goal.valid.sum() == min(SMALL.frames, last - step + 1)


def test_the_same_seed_plans_the_same(planner, shown):
    start = jax.tree.map(lambda x: x[:4], shown)
    for once, again in zip(planner.plan(start), planner.plan(start), strict=True):
        np.testing.assert_array_equal(once, again)


def test_the_best_draws_make_the_next_one():
    drawn = np.arange(20.0)[:, None]
    cost = np.abs(drawn[:, 0] - 7.0)
    cost[3] = np.nan
    assert mppi._average(drawn, cost)[0] == pytest.approx(7.0, abs=0.01)
    one_sided = np.where(drawn[:, 0] < 7, np.inf, cost)
    assert 7.0 < mppi._average(drawn, one_sided)[0] < 7.6
    assert np.isfinite(mppi._average(drawn, np.full(20, np.nan))).all()


def test_draws_of_neighbouring_frames_are_alike():
    noise = mppi._correlate(np.random.default_rng(0).normal(size=(20_000, 5, 2)))
    flat = noise.transpose(1, 0, 2).reshape(5, -1)
    np.testing.assert_allclose(np.corrcoef(flat)[0], 0.6 ** np.arange(5), atol=0.02)
    np.testing.assert_allclose(flat.std(1), 1.0, atol=0.02)


def test_the_command_writes_what_training_reads(tmp_path, bones, hop, model, capsys):
    short = hop._replace(qpos=hop.qpos[:4], fps=60.0)
    native.write(tmp_path / "hop.npz", short, bones)
    arguments = [str(tmp_path), str(tmp_path / "out"), "--samples", "8", "--frames", "2"]
    assert plan.main(arguments) == 0
    (found,) = formats.read(tmp_path / "out", bones)
    assert found.plan is not None and found.fps == FPS and len(found.qpos) == 2
    built = library.build(library.load_clips(str(tmp_path / "out"), model), model)
    np.testing.assert_allclose(built.captured.qpos[0], found.qpos, atol=1e-6)
    assert "hop" in capsys.readouterr().out
    before = (tmp_path / "out" / "hop.npz").read_bytes()
    assert plan.main(arguments) == 0
    assert "has a plan: skipped" in capsys.readouterr().out
    assert (tmp_path / "out" / "hop.npz").read_bytes() == before


def test_planned_clips_can_be_planned_again_by_other_physics(tmp_path, bones, hop, capsys):
    once, twice = tmp_path / "once", tmp_path / "twice"
    short = hop._replace(qpos=hop.qpos[:3])
    (tmp_path / "clips").mkdir()
    native.write(tmp_path / "clips" / "hop.npz", short, bones)
    few = ["--samples", "8", "--frames", "2"]
    assert plan.main([str(tmp_path / "clips"), str(once), *few]) == 0
    assert plan.main([str(once), str(twice), *few, "--substeps", "5"]) == 0
    assert f"--motion.clips {twice} --motion.substeps 5\n" in capsys.readouterr().out
    (first,), (second,) = formats.read(once, bones), formats.read(twice, bones)
    np.testing.assert_array_equal(first.qpos, second.qpos)
    assert (first.plan.substeps, second.plan.substeps) == (3, 5)
    with pytest.raises(UserError, match="planned with 5 physics steps.*not --motion.substeps 3"):
        motion_env.load_parts(MotionConfig(clips=twice))
    assert plan.main([str(once), str(twice), *few]) == 2
    assert "was planned with --substeps 5, not 3: name another folder" in capsys.readouterr().err


def test_what_is_lost_stays_without_a_plan_and_is_tried_again(tmp_path, bones, hop, capsys):
    qpos = hop.qpos[:6].copy()
    qpos[1:, 0] += 40.0  # there is no way to follow this
    native.write(tmp_path / "hop.npz", hop._replace(qpos=qpos), bones)
    arguments = [str(tmp_path), str(tmp_path / "out"), "--samples", "8", "--frames", "2"]
    for _ in range(2):
        assert plan.main(arguments) == 0
        assert "no plan found" in capsys.readouterr().out
        (found,) = formats.read(tmp_path / "out", bones)
        assert found.plan is None and len(found.qpos) == 6


def test_physics_that_explodes_makes_no_plan(planner, shown):
    wild = shown._replace(qvel=shown.qvel * np.float32(1e12) + np.float32(1e12))
    assert planner.plan(wild) is None


def test_training_on_several_clips_without_plans_says_that_there_could_be(
    tmp_path, bones, hop, planned, capsys
):
    config = TrainConfig(env="imitation", motion=MotionConfig(clips=tmp_path))
    native.write(tmp_path / "a.npz", hop, bones)
    train._print_clip_hints(config)
    assert not capsys.readouterr().out
    native.write(tmp_path / "b.npz", hop, bones)
    train._print_clip_hints(config)
    assert f"python -m jaxrl.clips.plan {tmp_path} PLANNED" in capsys.readouterr().out
    native.write(tmp_path / "b.npz", hop._replace(plan=planned), bones)
    train._print_clip_hints(config)
    assert not capsys.readouterr().out


def test_a_policy_that_is_used_to_plans_is_told_apart(tmp_path, bones, hop, planned, capsys):
    clips = {"bare": hop, "planned": hop._replace(plan=planned)}
    for name, clip in clips.items():
        (tmp_path / name).mkdir()
        native.write(tmp_path / name / "hop.npz", clip, bones)
    for trained, given in itertools.product(clips, clips):
        evaluate._warn_of_plans(tmp_path / trained, tmp_path / given)
        said = "Plan them first" in capsys.readouterr().out
        assert said == (trained == "planned" and given == "bare")
    (tmp_path / "emptied").mkdir()
    evaluate._warn_of_plans(tmp_path / "emptied", tmp_path / "bare")
    evaluate._warn_of_plans(None, tmp_path / "bare")
    evaluate._warn_of_plans(tmp_path / "gone", tmp_path / "bare")
    assert not capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (["{here}"], "another folder than that of the clips"),
        (["{here}/hop.npz"], "is a file"),
        (["{here}/out", "--samples", "0"], "--samples must be at least 1"),
        (["{here}/out", "--action-range", "nan"], "--action-range must be greater than 0"),
        (["{here}/out", "--seed", "-1"], "--seed must not be negative"),
        (["{here}/out", "--loop-seconds", "inf"], "--loop-seconds must not be negative"),
    ],
)
def test_what_cannot_be_planned(tmp_path, bones, hop, capsys, arguments, complaint):
    native.write(tmp_path / "hop.npz", hop, bones)
    given = [str(tmp_path), *(word.format(here=tmp_path) for word in arguments)]
    assert plan.main(given) == 2
    assert complaint in capsys.readouterr().err


def test_two_clips_of_one_name_are_refused(tmp_path, bones, hop, capsys):
    native.write(tmp_path / "hop.npz", hop, bones)
    (tmp_path / "hop.txt").write_text("{}")
    assert plan.main([str(tmp_path), str(tmp_path / "out")]) == 2
    assert "2 clips are called 'hop'" in capsys.readouterr().err
