"""MPPI planning: plans are reproducible in MuJoCo and track better than servos alone."""

import itertools

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from jaxrl import evaluate, train
from jaxrl.clips import plan
from jaxrl.config import MotionConfig, TrainConfig
from jaxrl.config.mppi import MPPIConfig
from jaxrl.envs.tasks import motion_env
from jaxrl.errors import UserError
from jaxrl.motion import formats, library, mppi, synthetic
from jaxrl.motion.formats import native
from jaxrl.motion.humanoid import Humanoid
from jaxrl.motion.mppi import Planner

FPS = 30.0
SMALL = MPPIConfig(samples=48, frames=6, rounds=2)


@pytest.fixture(scope="module")
def humanoid(model):
    return Humanoid(model, FPS, 3)


@pytest.fixture(scope="module", autouse=True)
def shared_planners():
    """Let commands with the same settings share a planner: its costs are slow to trace."""
    planners = {}

    def shared(humanoid, config):
        key = humanoid.substeps, config
        if key not in planners:
            planners[key] = Planner(humanoid, config)
        return planners[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mppi, "Planner", shared)
        yield


@pytest.fixture(scope="module")
def hop(bones, model):
    """A jump that gravity does not allow: half a second, mostly at a constant height of 5 cm."""
    clip = synthetic.stepping(bones, seconds=0.5)._replace(name="hop", loops=False)
    qpos = clip.qpos.copy()
    qpos[:, 2] += np.where(np.arange(len(qpos)) < 4, 0.0, 0.05)
    return clip._replace(qpos=qpos)


@pytest.fixture(scope="module")
def reference(hop, model):
    return jax.tree.map(lambda x: np.asarray(x), library.build([hop], model, FPS).captured)


@pytest.fixture(scope="module")
def planner(humanoid):
    return Planner(humanoid, SMALL)


@pytest.fixture(scope="module")
def planned(planner, reference):
    ticks = []
    made = planner.plan(reference, lambda: ticks.append(None))
    assert len(ticks) == len(reference.qpos) - 1
    return made


def _simulated(humanoid, start, targets):
    """Return the poses [F, nq] of a rollout in MuJoCo."""
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


def test_plan_is_reproduced_by_mujoco(humanoid, reference, planned):
    """Servo targets plus feedforward bring the humanoid from each planned pose to the next."""
    targets = _servo_target(humanoid, planned.qpos, planned.qvel) + planned.feedforward
    poses = _simulated(humanoid, (reference.qpos[0], reference.qvel[0]), targets)
    np.testing.assert_allclose(planned.qpos, poses, atol=2e-3)
    np.testing.assert_array_equal(planned.qpos[0], np.float64(reference.qpos[0]))


def test_plan_tracks_better_than_servos_alone(humanoid, hop, reference, planned):
    targets = _servo_target(humanoid, reference.qpos, reference.qvel)
    alone = _simulated(humanoid, (reference.qpos[0], reference.qvel[0]), targets)

    def mean_error(poses):
        built = library.build([hop._replace(qpos=poses)], humanoid.model, FPS)
        return np.linalg.norm(built.captured.position - reference.position, axis=-1).mean()

    assert mean_error(planned.qpos) < 0.75 * mean_error(alone), (
        mean_error(planned.qpos),
        mean_error(alone),
    )


def test_planning_goals_are_the_upcoming_frames(humanoid, reference, monkeypatch):
    """Step k ends in frame k; frames after the last one are masked."""
    planner, goals = Planner(humanoid, SMALL), []

    def record(best, body, goal, rng):
        goals.append(goal)
        return best

    monkeypatch.setattr(planner, "_update", record)
    planner.plan(reference)
    last = len(reference.qpos) - 1
    for step, goal in enumerate(goals, start=1):
        frames = np.minimum(step + np.arange(SMALL.frames), last)
        np.testing.assert_array_equal(goal.reference.qpos, np.float64(reference.qpos[frames]))
        np.testing.assert_allclose(
            goal.servo_target, _servo_target(humanoid, reference.qpos, reference.qvel)[frames]
        )
        assert goal.valid.sum() == min(SMALL.frames, last - step + 1)


def test_same_seed_gives_the_same_plan(planner, reference):
    start = jax.tree.map(lambda x: x[:4], reference)
    for once, again in zip(planner.plan(start), planner.plan(start), strict=True):
        np.testing.assert_array_equal(once, again)


def test_average_favors_low_cost_samples():
    samples = np.arange(20.0)[:, None]
    cost = np.abs(samples[:, 0] - 7.0)
    cost[3] = np.nan
    assert mppi.average(samples, cost)[0] == pytest.approx(7.0, abs=0.01)
    one_sided = np.where(samples[:, 0] < 7, np.inf, cost)
    assert 7.0 < mppi.average(samples, one_sided)[0] < 7.6
    assert np.isfinite(mppi.average(samples, np.full(20, np.nan))).all()


def test_noise_is_correlated_over_frames():
    noise = mppi.correlate(np.random.default_rng(0).normal(size=(20_000, 5, 2)))
    flat = noise.transpose(1, 0, 2).reshape(5, -1)
    np.testing.assert_allclose(np.corrcoef(flat)[0], 0.6 ** np.arange(5), atol=0.02)
    np.testing.assert_allclose(flat.std(1), 1.0, atol=0.02)


def test_plan_command_writes_clips_that_training_reads(tmp_path, bones, hop, model, capsys):
    short = hop._replace(qpos=hop.qpos[:4], fps=60.0)
    native.write(tmp_path / "hop.npz", short, bones)
    arguments = [str(tmp_path), str(tmp_path / "out"), "--samples", "8", "--frames", "2"]
    assert plan.main(arguments) == 0
    (found,) = formats.read(tmp_path / "out", bones)
    assert found.plan is not None and found.fps == FPS and len(found.qpos) == 2
    built = library.build(library.load_clips(str(tmp_path / "out"), model), model)
    np.testing.assert_allclose(built.captured.qpos, found.qpos, atol=1e-6)
    assert "hop" in capsys.readouterr().out
    before = (tmp_path / "out" / "hop.npz").read_bytes()
    assert plan.main(arguments) == 0
    assert "has a plan: skipped" in capsys.readouterr().out
    assert (tmp_path / "out" / "hop.npz").read_bytes() == before


def test_planned_clips_can_be_replanned_with_other_substeps(tmp_path, bones, hop, capsys):
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


def test_failed_clips_get_no_plan_and_are_retried(tmp_path, bones, hop, capsys):
    qpos = hop.qpos[:6].copy()
    qpos[1:, 0] += 40.0  # impossible to follow
    native.write(tmp_path / "hop.npz", hop._replace(qpos=qpos), bones)
    arguments = [str(tmp_path), str(tmp_path / "out"), "--samples", "8", "--frames", "2"]
    for _ in range(2):
        assert plan.main(arguments) == 0
        assert "no plan found" in capsys.readouterr().out
        (found,) = formats.read(tmp_path / "out", bones)
        assert found.plan is None and len(found.qpos) == 6


def test_diverging_physics_gives_no_plan(planner, reference):
    wild = reference._replace(qvel=reference.qvel * np.float32(1e12) + np.float32(1e12))
    assert planner.plan(wild) is None


def test_training_on_unplanned_clips_suggests_planning(tmp_path, bones, hop, planned, capsys):
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


def test_evaluating_on_unplanned_clips_warns_after_planned_training(
    tmp_path, bones, hop, planned, capsys
):
    clips = {"bare": hop, "planned": hop._replace(plan=planned)}
    for name, clip in clips.items():
        (tmp_path / name).mkdir()
        native.write(tmp_path / name / "hop.npz", clip, bones)
    for trained, given in itertools.product(clips, clips):
        evaluate._warn_of_plans(tmp_path / trained, tmp_path / given)
        warned = "Plan them first" in capsys.readouterr().out
        assert warned == (trained == "planned" and given == "bare")
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
def test_invalid_plan_arguments_are_rejected(tmp_path, bones, hop, capsys, arguments, complaint):
    native.write(tmp_path / "hop.npz", hop, bones)
    given = [str(tmp_path), *(word.format(here=tmp_path) for word in arguments)]
    assert plan.main(given) == 2
    assert complaint in capsys.readouterr().err


def test_duplicate_clip_names_are_rejected(tmp_path, bones, hop, capsys):
    native.write(tmp_path / "hop.npz", hop, bones)
    (tmp_path / "hop.txt").write_text("{}")
    assert plan.main([str(tmp_path), str(tmp_path / "out")]) == 2
    assert "2 clips are called 'hop'" in capsys.readouterr().err
