"""The page on which arrow keys steer a robot, in a real browser; its paths against NumPy."""

import json

import mujoco
import numpy as np
import pytest

from jaxrl import render
from jaxrl.errors import UserError
from jaxrl.rendering import geoms, html_viewer, video
from tests.helpers import browser

XML = """<mujoco><worldbody><geom type="plane" size="5 5 1"/>
<body pos="0 0 0.5"><freejoint/>
  <geom type="box" size="0.3 0.1 0.1" rgba="0.9 0.1 0.1 1"/>
  <body pos="0.3 0 0"><joint type="hinge" axis="0 1 0"/>
    <geom type="capsule" fromto="0 0 0 0 0 -0.4" size="0.05"/></body>
</body></worldbody></mujoco>"""
FRAMES, PAUSE = 121, 0.05
# Speed and turning rate of each recorded episode.
MOTIONS = [(speed, turn) for speed in (0.5, 1.5) for turn in (-1.2, -0.4, 0.0, 0.4, 1.2)]


def walk(speed, turn):
    """Return configurations along a path of constant speed and curvature, with a swinging leg."""
    time = PAUSE * np.arange(FRAMES)
    heading = 0.3 + turn * time
    steps = speed * PAUSE * np.stack([np.cos(heading), np.sin(heading)], axis=1)
    qpos = np.zeros((FRAMES, 8))
    qpos[1:, :2] = np.cumsum(steps[:-1], axis=0)
    qpos[:, 2] = 0.5
    qpos[:, 3], qpos[:, 6] = np.cos(heading / 2), np.sin(heading / 2)
    qpos[:, 7] = 0.5 * np.sin(4.0 * speed * time)
    return qpos


@pytest.fixture(scope="module")
def model():
    return mujoco.MjModel.from_xml_string(XML)


@pytest.fixture(scope="module")
def text(model):
    info = html_viewer.EpisodeInfo("walk", None, FRAMES - 1, np.zeros(FRAMES), pause=PAUSE)
    parts = [(info, geoms.body_poses(model, walk(*motion)), None) for motion in MOTIONS]
    data = html_viewer.model_data(model, parts)
    return html_viewer.page("A robot", data | html_viewer.steer_data(model, PAUSE))


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    """A function that opens a page in a browser."""
    if browser.found() is None:
        pytest.skip(f"no Chromium here: none of {', '.join(browser.NAMES)} is installed")

    def open_page(text):
        folder = tmp_path_factory.mktemp("steering")
        (folder / "page.html").write_text(text, encoding="utf-8")
        return browser.opened(folder / "page.html", folder / "home")

    return open_page


@pytest.fixture(scope="module")
def page(text, tab):
    """The page, paused: tests advance it by themselves."""
    with tab(text) as opened:
        opened.until("document.body.dataset.frame !== undefined")
        opened.ask("play(false)")
        yield opened
        assert not opened.errors


# Drives the robot with some keys held; returns of each tick its place, its heading, its episode and
# frame, and how far the leg has swung.
DRIVE = """((seconds, keys, command) => {
  const seen = [], before = new THREE.Quaternion();
  Object.assign(steering.command, command);
  for (let i = 0; i < 60 * seconds; i++) {
    steering.advance(1 / 60, new Set(keys), view.own);
    const { position, quaternion } = view.own[0];
    const { number } = steering.row.episode, leg = view.own[1].quaternion;
    const swung = i ? leg.angleTo(before) : 0;
    before.copy(leg);
    seen.push([position.x, position.y, heading(quaternion), number, steering.row.frame, swung]);
  }
  return JSON.stringify(seen);
})"""


def drive(page, seconds, *keys, **command):
    page.ask("DATA.episodes.forEach((one, i) => (one.number = i))")
    words = f"({seconds}, {json.dumps(keys)}, {json.dumps(command)})"
    return np.array(json.loads(page.ask(DRIVE + words)))


def command(page):
    return json.loads(page.ask("JSON.stringify(steering.command)"))


@pytest.mark.slow
def test_robot_follows_the_command(page):
    for direction, speed in [(0.0, 1.5), (1.5, 1.5), (-1.5, 0.5), (3.0, 0.5), (3.0, 1.5)]:
        seen = drive(page, 8, direction=direction, speed=speed)
        moved = seen[-1, :2] - seen[-121, :2]  # in the last two seconds
        off = np.angle(np.exp(1j * (np.arctan2(moved[1], moved[0]) - direction)))
        assert abs(off) < 0.3, (direction, speed)
        assert np.linalg.norm(moved) / 2 == pytest.approx(speed, rel=0.1)


@pytest.mark.slow
def test_motion_is_continuous_and_recorded(page):
    """The robot plays recorded frames in order, and jumps only from pose to pose."""
    drive(page, 4, direction=0.0, speed=1.5)
    seen = drive(page, 6, direction=2.5, speed=0.5)
    assert np.linalg.norm(np.diff(seen[:, :2], axis=0), axis=1).max() < 1.7 / 60
    turned = np.abs(np.angle(np.exp(1j * np.diff(seen[:, 2]))))
    assert turned.max() < 1.3 / 60 + 0.01
    assert seen[:, 5].max() < 0.12  # rad; a step swings it by 0.05, and episodes are out of phase
    same = seen[1:, 3] == seen[:-1, 3]
    step = np.diff(seen[:, 4])
    played_on = same & (step >= 0) & (step <= 1)
    assert len(set(seen[:, 3])) > 2 and 1 <= (~played_on).sum() < 20
    assert seen[:, 4].max() <= FRAMES - 1 - 20  # a second ahead is always known


@pytest.mark.slow
def test_arrow_keys_change_the_command(page):
    drive(page, 0.1, direction=0.5, speed=0.6)
    before, top = command(page), page.ask("steering.top")
    drive(page, 1, "ArrowLeft")
    drive(page, 0.2, "ArrowUp")
    after = command(page)
    assert after["direction"] - before["direction"] == pytest.approx(1.8, rel=0.02)
    assert after["speed"] - before["speed"] == pytest.approx(0.1 * top, rel=0.1)
    drive(page, 5, "ArrowDown")
    assert command(page)["speed"] == 0
    drive(page, 5, "ArrowUp", "ArrowRight")
    assert command(page)["speed"] == top == pytest.approx(1.5, rel=0.01)
    press = "window.dispatchEvent(new KeyboardEvent(kind, {key: 'ArrowUp'}))"
    sizes = f"['keydown', 'keyup'].map((kind) => ({press}, held.size))"
    assert page.ask(f"JSON.stringify({sizes})") == "[1,0]"


@pytest.mark.slow
def test_paths_are_those_of_the_recording(page):
    for number, frame in [(0, 0), (4, 30), (9, 100)]:
        row = number * (FRAMES - 20) + frame
        found = json.loads(page.ask(f"JSON.stringify(steering.path(steering.rows[{row}]))"))
        qpos = walk(*MOTIONS[number])
        ahead = qpos[frame + np.array([7, 13, 20]), :2] - qpos[frame, :2]
        angle = 0.3 + MOTIONS[number][1] * PAUSE * frame
        turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
        np.testing.assert_allclose(found, ahead @ turn.T, atol=2e-3)


@pytest.mark.slow
def test_choosing_an_episode_plays_it(page):
    page.ask("find('which').value = '1'; find('which').onchange({target: find('which')})")
    page.until("document.body.dataset.frame > 3")
    assert page.ask("steering") is None and not page.ask("view.arrow.visible")
    page.ask("find('which').value = 'steer'; find('which').onchange({target: find('which')})")
    page.ask("play(false)")
    assert "moves at" in page.ask("find('return').innerText")
    assert page.ask("view.arrow.visible")


def test_only_pages_that_are_steered_carry_its_script(text):
    assert "class Steering" in text
    data = {"episodes": [], "geoms": []}
    assert "class Steering" not in html_viewer.page("x", data)


ARM = "<body><joint/><geom size='.1'/></body>"
CUBE = "<body pos='1 0 0'><freejoint/><geom size='.1'/></body>"


def test_steered_body_is_a_root_that_moves_freely(model):
    assert html_viewer.steered_body(model) == 0
    for bodies in (ARM, ARM + CUBE):
        text = f"<mujoco><worldbody>{bodies}</worldbody></mujoco>"
        assert html_viewer.steered_body(mujoco.MjModel.from_xml_string(text)) is None


@pytest.mark.parametrize(
    "frames, pause, text",
    [(40, 0.05, "an episode of 2 seconds or more; the longest has 1.95"), (99, 0.2, "use 10")],
)
def test_too_little_motion_is_refused(frames, pause, text):
    short = html_viewer.EpisodeInfo("a", None, 9, np.zeros(10), pause=pause)
    long = short._replace(returns=np.zeros(frames))
    with pytest.raises(UserError, match=text):
        video._checked_pause([short, long])
    assert video._checked_pause([short._replace(pause=0.1), long._replace(pause=0.1)]) == 0.1


@pytest.mark.slow
def test_shortest_motion_is_enough(model, text, tab):
    """A single episode of two seconds: the robot plays it again and again."""
    qpos = walk(1.0, 0.3)[:41]
    info = html_viewer.EpisodeInfo("walk", None, 40, np.zeros(41), pause=PAUSE)
    data = html_viewer.model_data(model, [(info, geoms.body_poses(model, qpos), None)])
    with tab(html_viewer.page("x", data | html_viewer.steer_data(model, PAUSE))) as page:
        page.until("document.body.dataset.frame !== undefined")
        page.ask("play(false)")
        seen = drive(page, 6, direction=0.3, speed=1.0)
        path = np.linalg.norm(np.diff(seen[:, :2], axis=0), axis=1).sum()
        assert path == pytest.approx(6.0, rel=0.05)
        assert not page.errors


REFUSED = {
    "--steer --out walk.gif": "--steer makes a page: use --out walk.html",
    "--steer --failures --out walk.html": "leave out --failures",
    "--steer --follow": "leave out --failures and --follow",
}


@pytest.mark.parametrize("flags", REFUSED)
def test_flags_that_do_not_fit_are_refused(flags, capsys):
    assert render.main(["runs/none", *flags.split()]) == 2
    assert REFUSED[flags] in capsys.readouterr().err


def test_robots_that_do_not_move_freely_are_refused(tmp_path, capsys):
    assert render.main(["zoo:cartpole", "--steer", "--out", str(tmp_path / "x.html")]) == 2
    assert "--steer needs a robot that moves freely" in capsys.readouterr().err
