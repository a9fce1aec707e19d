"""Mirror images of motions: exact, their own inverse, and right for plans and other models."""

import mujoco
import numpy as np
import pytest

from jaxrl.errors import UserError
from jaxrl.motion import library, mirroring, skeleton, synthetic
from jaxrl.motion.clip import Plan
from jaxrl.motion.humanoid import Humanoid

MIRROR = np.array([1.0, -1.0, 1.0])


@pytest.fixture(scope="module")
def humanoid(model):
    return Humanoid(model, 30.0, 3)


@pytest.fixture(scope="module")
def mirror(humanoid):
    return mirroring.build(humanoid.skeleton, humanoid.servos)


@pytest.fixture(scope="module")
def clip(bones, model):
    """A second of every joint turning at random, far from symmetric."""
    rng, still = np.random.default_rng(0), synthetic.stepping(bones, seconds=1.0)
    qpos = still.qpos.copy()
    speed = rng.normal(size=model.nv)
    for i, pose in enumerate(qpos):
        mujoco.mj_integratePos(model, pose, speed, i / 30.0)
    return still._replace(qpos=qpos)


def test_mirroring_twice_is_the_identity(mirror, clip, model):
    rng = np.random.default_rng(1)
    frames = len(clip.qpos)
    plan = Plan(clip.qpos, rng.normal(size=(frames, model.nv)), rng.normal(size=(frames, 28)), 3)
    clip = clip._replace(plan=plan)
    once = mirror.clip(clip)
    again = mirror.clip(once)
    for before, mirrored, after in zip(
        (clip.qpos, *plan[:3]),
        (once.qpos, *once.plan[:3]),
        (again.qpos, *again.plan[:3]),
        strict=True,
    ):
        assert np.abs(mirrored - before).max() > 0.5
        np.testing.assert_array_equal(after, before)
    assert once.plan.substeps == 3


def test_mirrored_clip_moves_as_the_mirror_image(mirror, clip, model, bones):
    """Compared with MuJoCo: positions, rotations and velocities of every body."""
    original, mirrored = (
        library.build_on_cpu([each], model).reference for each in (clip, mirror.clip(clip))
    )
    partner = {"left": "right", "right": "left"}
    for i, name in enumerate(bones.bodies):
        side, _, part = name.partition("_")
        other = bones.bodies.index(f"{partner[side]}_{part}" if side in partner else name)
        position = original.position[:, other] * MIRROR
        np.testing.assert_allclose(mirrored.position[:, i], position, atol=1e-5, err_msg=name)
        np.testing.assert_allclose(
            mirrored.velocity[:, i], original.velocity[:, other] * MIRROR, atol=1e-4
        )
        np.testing.assert_allclose(
            mirrored.spin[:, i], -original.spin[:, other] * MIRROR, atol=1e-4
        )
    assert np.abs(original.position[:, bones.bodies.index("left_elbow"), 1]).max() > 0.05
    # The same by permutation alone, as environments do it.
    for name, found, built in zip(
        original._fields, mirror.reference(original), mirrored, strict=True
    ):
        signs = np.sign(np.sum(found * built, -1, keepdims=True)) if name == "rotation" else 1.0
        np.testing.assert_allclose(found * signs, built, atol=1e-4, err_msg=name)


def test_mirrored_plan_reaches_the_mirrored_poses(mirror, humanoid, clip):
    """Servo targets that lead to some poses lead, mirrored, to the mirrored poses."""
    rng = np.random.default_rng(2)
    targets = rng.uniform(-0.5, 0.5, (5, humanoid.num_actuators))
    qpos, qvel = clip.qpos[10], rng.normal(size=humanoid.model.nv)
    there = _simulated(humanoid, qpos, qvel, targets)
    image = _simulated(humanoid, mirror.qpos(qpos), mirror.qvel(qvel), mirror.targets(targets))
    assert np.abs(there - qpos).max() > 0.3
    np.testing.assert_allclose(image, mirror.qpos(there), atol=1e-4)
    angles, mirrored = (np.asarray(humanoid.angles(each)) for each in (qpos, mirror.qpos(qpos)))
    np.testing.assert_allclose(mirrored, mirror.targets(angles), atol=1e-5)


def _simulated(humanoid, qpos, qvel, targets):
    data = mujoco.MjData(humanoid.model)
    data.qpos[:], data.qvel[:] = qpos, qvel
    for target in targets:
        data.ctrl[:] = target
        mujoco.mj_step(humanoid.model, data, humanoid.substeps)
    return data.qpos.copy()


_LEG = """<body name="{name}" pos="{pos}"><joint name="{name}" axis="{axis}" type="hinge"/>
<geom size="0.1" mass="{mass}"/></body>"""


def _two_legs(names, axes, pos=("0 0.1 0", "0 -0.1 0"), masses=(1, 1)):
    each = zip(names, axes, pos, masses, strict=True)
    legs = "".join(_LEG.format(name=n, axis=a, pos=p, mass=m) for n, a, p, m in each)
    model = mujoco.MjModel.from_xml_string(
        f'<mujoco><worldbody><body name="pelvis"><freejoint/><geom size="0.1"/>{legs}</body>'
        "</worldbody></mujoco>"
    )
    return skeleton.describe(model)


@pytest.mark.parametrize(
    "names, axes, signs",
    [
        (("L_Hip", "R_Hip"), ("1 0 0", "1 0 0"), (-1, -1)),  # SMPL's names; about the same axis
        (("hip_l", "hip_r"), ("1 0 0", "-1 0 0"), (1, 1)),
        (("LeftLeg", "RightLeg"), ("0 1 0", "0 1 0"), (1, 1)),
    ],
)
def test_hinges_turn_as_their_axes_demand(names, axes, signs):
    found = mirroring.build(_two_legs(names, axes), np.zeros(0, int))
    assert found.bodies.tolist() == [0, 2, 1]
    pose = np.arange(9.0)
    assert found.qpos(pose)[7:].tolist() == [signs[0] * 8.0, signs[1] * 7.0]


@pytest.mark.parametrize(
    "change",
    [
        {"names": ("a", "b")},
        {"pos": ("0 0.1 0", "0 -0.2 0")},
        {"masses": (1, 2)},
        {"axes": ("1 0 0", "0 0 1")},
    ],
)
def test_models_that_are_not_symmetric_are_refused(change):
    sides = {"names": ("left_leg", "right_leg"), "axes": ("1 0 0", "1 0 0")} | change
    with pytest.raises(UserError, match="is not the mirror image of"):
        mirroring.build(_two_legs(**sides), np.zeros(0, int))
