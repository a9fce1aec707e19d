"""Report pages in a real browser, at desktop and phone sizes."""

import numpy as np
import pytest

from jaxrl.config import presets
from jaxrl.reports import pages
from tests.envs.tasks.test_pick_place_phases import GRASPS, SUCCESSES
from tests.helpers import browser
from tests.helpers import run_folders as folders

pytestmark = pytest.mark.slow

PHONE, DESKTOP = (390, 844), (1200, 900)
# How far elements extend beyond the window, except inside scrollable ones.
OVERFLOW = """Math.max(...[...document.querySelectorAll("main *")]
  .filter((e) => !e.closest(".scroll") || e.matches(".scroll"))
  .map((e) => e.getBoundingClientRect().right)) - innerWidth"""


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    """A browser tab, and a folder with the page of one run and a comparison."""
    if browser.found() is None:
        pytest.skip(f"no Chromium here: none of {', '.join(browser.NAMES)} is installed")
    place = tmp_path_factory.mktemp("pages")
    rows = folders.picking(SUCCESSES, GRASPS)
    for i, row in enumerate(rows):
        row |= {f"eval/a_rather_long_name_{k}": float(k + i) for k in range(12)}
        row |= {"eval/mean_reward": 5.0 * i, "time/time_elapsed": 9.0 * i, "train/loss": 2.0**-i}
    long = "python -m jaxrl.train pick-place-easy --run-dir " + "a" * 200
    for seed in range(3):
        run = folders.make(
            place / f"seed-{seed}", rows, presets.get("pick-place-easy"), seed=seed, num_envs=64
        )
        (run / "command.txt").write_text(long)
    video = "<canvas width=2000></canvas><script>parent.postMessage('plays', '*')</script>"
    (run / "look.html").write_text(video)
    pages.write([run], place / "one.html")
    pages.write(sorted(place.glob("seed-*")), place / "all.html")
    with browser.opened(place / "one.html", place / "home") as tab:
        yield tab, place


def _resize(tab, size, dark=False):
    tab.resize(*size, dark=dark)
    tab.until(f"innerWidth === {size[0]}")


@pytest.mark.parametrize("name", ["one", "all"])
def test_pages_fit_a_phone_and_make_no_requests(tab, name):
    tab, place = tab
    _resize(tab, PHONE)
    tab.go(place / f"{name}.html")
    assert tab.ask("document.documentElement.scrollWidth") <= 390
    assert tab.ask(OVERFLOW) <= 0
    narrow = tab.screenshot()
    _resize(tab, DESKTOP)
    assert tab.ask(OVERFLOW) <= 0
    wide = tab.screenshot()
    for image, size in ((narrow, PHONE), (wide, DESKTOP)):
        assert image.shape == (size[1], size[0], 3) and image.std() > 10
    assert not tab.errors
    assert [url for url in tab.requests if not url.startswith(("file:///", "data:"))] == []


def test_font_size_is_fixed_and_charts_use_the_width(tab):
    tab, place = tab
    tab.go(place / "one.html")
    seen = []
    for size in (PHONE, DESKTOP):
        _resize(tab, size)
        box = 'document.querySelector(".large svg").getBoundingClientRect()'
        font = 'getComputedStyle(document.querySelector(".plot .x")).fontSize'
        seen.append((tab.ask(f"{box}.width"), tab.ask(font)))
    (narrow, small), (wide, large) = seen
    assert small == large == "11px"
    assert narrow > 250 and wide > 900


def test_hovering_shows_the_values_at_the_pointer(tab):
    tab, place = tab
    tab.go(place / "one.html")
    _resize(tab, DESKTOP)
    caption = 'document.querySelector(".large figcaption").innerText.replace(/\\s+/g, " ")'
    assert "evaluation 45" in tab.ask(caption)
    box = 'document.querySelector(".large svg").getBoundingClientRect()'
    x, y, width = (tab.ask(f"{box}.{side}") for side in ("x", "y", "width"))
    tab.move(x + 0.31 * width, y + 50)  # nearest to the third of ten points
    tab.until(f"{caption}.includes('at 3,000')")
    assert "evaluation 10" in tab.ask(caption)
    tab.move(5, 5)
    tab.until(f"{caption}.includes('evaluation 45')")


def test_video_plays_in_a_sandboxed_frame(tab):
    tab, place = tab
    tab.go(place / "one.html")
    _resize(tab, DESKTOP)
    tab.ask("onmessage = (event) => { window.received = event.data; }; 0")
    frame = 'document.querySelector("iframe")'
    assert tab.ask(f"{frame}.contentDocument") is None  # sandboxed: it cannot access this page
    tab.ask(f"{frame}.srcdoc += ' '; 0")  # reloads it, now that the listener is installed
    tab.ask(f"{frame}.scrollIntoView()")
    tab.until("window.received === 'plays'")


def test_dark_mode_has_its_own_colors(tab):
    tab, place = tab
    tab.go(place / "one.html")
    _resize(tab, DESKTOP)
    light_image = tab.screenshot()
    _resize(tab, DESKTOP, dark=True)
    dark_image = tab.screenshot()
    assert np.median(light_image) > 230 and np.median(dark_image) < 50
    assert dark_image.max() > 180  # readable text
