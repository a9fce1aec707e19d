"""The HTML viewer is self-contained and plays in a real browser."""

import base64
import json
import re
import time

import mujoco
import numpy as np
import pytest

from jaxrl.rendering import geoms, html_viewer
from tests.helpers import browser

XML = """<mujoco><worldbody><geom type="plane" size="5 5 1"/>
<body pos="0 0 0.5"><freejoint/>
  <geom type="box" size="0.2 0.3 0.1" rgba="0.9 0.1 0.1 1"/>
  <geom type="capsule" fromto="0 0 0 0 0 0.4" size="0.05" rgba="0.1 0.6 0.1 1"/>
</body></worldbody></mujoco>"""
FRAMES = 41


def _episode(number, title=None, success=None):
    returns = np.linspace(0, number, FRAMES)
    return html_viewer.EpisodeInfo(
        title or f"episode {number}", success, FRAMES - 1, returns, pause=0.05
    )


@pytest.fixture(scope="module")
def viewer():
    """Return a page of two episodes, one with a ghost, and their poses."""
    model = mujoco.MjModel.from_xml_string(XML)
    qpos = np.tile(model.qpos0, (FRAMES, 1))
    qpos[:, 0] = np.linspace(0, 1, FRAMES)
    poses, ghost = geoms.body_poses(model, qpos), geoms.body_poses(model, qpos + np.eye(7)[1])
    episodes = [
        (_episode(1, success=True), poses, None),
        (_episode(2, success=False), poses, ghost),
    ]
    return html_viewer.page("A <title> & $more", html_viewer.model_data(model, episodes)), poses


def _data(text):
    (found,) = re.findall(r"<script>const DATA = (.*);</script>", text)
    return json.loads(found)


def test_poses_round_trip(viewer):
    text, poses = viewer
    one, two = _data(text)["episodes"]
    numbers = np.frombuffer(base64.b64decode(one["poses"]), "<i2").reshape(FRAMES, 1, 7)
    place = one["origin"] + one["scale"] * numbers[..., :3]
    np.testing.assert_allclose(place, poses.pos[:, 1:], atol=1e-4)
    np.testing.assert_allclose(numbers[..., 3:] / 32767, poses.quat[:, 1:], atol=1e-4)
    sums = np.frombuffer(base64.b64decode(two["returns"]), "<f4")
    assert sums[0] == 0 and sums[-1] == 2
    assert one["ghost"] is None and two["ghost"]


def test_page_has_no_external_urls_and_escapes_text(viewer):
    text, _ = viewer
    assert set(re.findall(r"https?://[^\s\"'`]+", text)) == {"http://www.w3.org/1999/xhtml"}
    assert "A &lt;title&gt; &amp; $more" in text
    images = [np.zeros((4, 4, 3), np.uint8)] * FRAMES
    escaped = html_viewer.page(
        "x", html_viewer.image_data([(_episode(1, "</script><b>$data"), images)])
    )
    assert _data(escaped)["episodes"][0]["title"] == "</script><b>$data"
    assert "</script><b>" not in escaped
    assert len(escaped) < 100_000  # images need no 3-D
    assert len(text) < 700_000


@pytest.fixture
def tab(tmp_path):
    """Return a function that opens a page in a browser."""
    if browser.found() is None:
        pytest.skip(f"no Chromium here: none of {', '.join(browser.NAMES)} is installed")

    def open_page(text):
        file = tmp_path / "page.html"
        file.write_text(text, encoding="utf-8")
        return browser.opened(file, tmp_path / "home")

    return open_page


def _frame(tab):
    return int(tab.ask("document.body.dataset.frame"))


def _red(image):
    image = image.astype(int)
    return image[..., 0] - image[..., 2] > 60


@pytest.mark.slow
def test_browser_plays_pauses_and_scrubs(tab, viewer):
    with tab(viewer[0]) as page:
        page.until("document.body.dataset.frame > 5")  # it plays by itself
        page.ask("document.getElementById('play').click()")
        stopped = _frame(page)
        before = page.screenshot()
        time.sleep(0.3)
        assert _frame(page) == stopped
        assert _red(before).sum() > 1000 and before.std() > 10  # the box is there, on its ground
        page.ask("document.getElementById('play').click()")
        page.until(f"document.body.dataset.frame > {stopped}")
        page.until("document.getElementById('play').getAttribute('aria-label') === 'play'")
        assert _frame(page) == FRAMES - 1  # it stops at the end
        assert "step 40 / 40" in page.ask("document.getElementById('info').innerText")
        page.ask("find('scrub').value = 10; find('scrub').oninput({target: find('scrub')})")
        assert _frame(page) == 10
        assert not page.errors
        assert [url for url in page.requests if not url.startswith("file:///")] == []


@pytest.mark.slow
def test_browser_switches_episodes_ghosts_and_views(tab, viewer):
    with tab(viewer[0]) as page:
        page.until("document.body.dataset.frame !== undefined")
        choose = (
            "find('which').value = 1; find('which').onchange({target: find('which')}); play(false)"
        )
        page.ask(choose + "; show(0)")
        time.sleep(0.5)
        shaded = page.screenshot()
        assert "failed" in page.ask("find('success').innerText")
        page.ask("find('shade').click()")
        time.sleep(0.5)
        alone = page.screenshot()
        assert (np.abs(shaded.astype(int) - alone).max(-1) > 12).sum() > 500  # the ghost is gone
        page.ask("view.camera.position.x += 3 * DATA.radius")  # as dragging does
        time.sleep(0.5)
        turned = page.screenshot()
        assert (_red(turned) != _red(alone)).sum() > 300
        page.ask("find('home').click()")
        time.sleep(0.5)
        assert (_red(page.screenshot()) != _red(alone)).sum() < 300
        assert not page.errors


@pytest.mark.slow
def test_browser_shows_images(tab):
    images = [np.full((20, 20, 3), [0, 5 * i, 200], np.uint8) for i in range(FRAMES)]
    with tab(
        page_text := html_viewer.page("board", html_viewer.image_data([(_episode(1), images)]))
    ) as shown:
        assert "THREE=" not in page_text
        shown.until("document.body.dataset.frame > 3")
        shown.ask("play(false); show(30)")
        time.sleep(0.3)
        middle = shown.screenshot()[250, 480]
        np.testing.assert_allclose(middle, [0, 150, 200], atol=8)
        box = "find('{}').getBoundingClientRect().{}"
        places = ("info", "bottom"), ("image", "top"), ("image", "bottom"), ("bar", "top")
        edges = [shown.ask(box.format(*place)) for place in places]
        assert edges == sorted(edges)  # no card covers the image
        assert not shown.errors


@pytest.mark.slow
def test_gallery_plays_views_again_and_again(tab, viewer):
    images = [np.full((20, 20, 3), [0, 5 * i, 200], np.uint8) for i in range(FRAMES)]
    views = [
        html_viewer.GalleryView("a <box>", ["`jaxrl zoo`"], _data(viewer[0])),
        html_viewer.GalleryView("a board", [], html_viewer.image_data([(_episode(1), images)])),
    ]
    text = html_viewer.gallery_page("Two", "of `them`", views)
    assert len(text) < 750_000  # one three.js
    with tab(text) as page:
        inside = "document.querySelectorAll('iframe')[{}].contentDocument.body"
        for number in (0, 1):
            frame = inside.format(number)
            page.until(f"{frame}?.dataset.frame > 5")
            page.until(f"{frame}.dataset.frame < 5")  # it begins again
            cards = f"[...{frame}.querySelectorAll('.card')].map((card) => card.offsetHeight)"
            assert page.ask(cards) == [0, 0]  # no controls
        assert "a <box>" in page.ask("document.body.innerText")
        assert page.ask("document.querySelector('figcaption code').innerText") == "jaxrl zoo"
        assert _red(page.screenshot()).sum() > 300
        assert not page.errors
        assert [
            url for url in page.requests if not url.startswith(("file:", "about:", "data:"))
        ] == []
