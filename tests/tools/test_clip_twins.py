"""The check of the split of motion clips finds twins, and frames that training has seen."""

import sys

import mujoco
import numpy as np

from jaxrl.motion import mirroring, skeleton, synthetic
from jaxrl.motion.formats import native
from tools import clip_twins


def test_twins_and_seen_frames_are_found(tmp_path, monkeypatch, capsys):
    model = skeleton.load_model()
    bones = skeleton.describe(model)
    mirror = mirroring.build(bones, np.zeros(0, int))
    clip = synthetic.stepping(bones, seconds=1.0)
    speed = np.random.default_rng(0).normal(size=model.nv)
    speed[:3] = 0.0
    qpos = clip.qpos.copy()
    for i, pose in enumerate(qpos):
        mujoco.mj_integratePos(model, pose, speed, i / 30.0)
    clip = clip._replace(qpos=qpos, loops=False)
    half = clip._replace(qpos=qpos[:16])
    for name, written in (
        ("humanoid3d_run", clip),
        ("humanoid3d_kick", mirror.clip(clip)),  # a test clip
        ("humanoid3d_walk", half),
    ):
        native.write(tmp_path / f"{name}.npz", written, bones)
    monkeypatch.setattr(sys, "argv", ["clip_twins", str(tmp_path)])
    assert clip_twins.main() == 1
    stdout = capsys.readouterr().out
    assert "3 clips, 1 pairs of twins" in stdout
    assert "different sides: humanoid3d_kick = humanoid3d_run\n" in stdout
    assert "humanoid3d_kick: 100%, 100% in humanoid3d_run\n" in stdout
    (tmp_path / "humanoid3d_run.npz").unlink()
    assert clip_twins.main() == 0
    seen = capsys.readouterr().out.partition("humanoid3d_kick: ")[2]
    assert seen.startswith("5") and "in humanoid3d_walk" in seen  # half of it
