"""Pages in a real browser, as wide as a desk and as narrow as a phone."""

import numpy as np
import pytest

from jaxrl.config import presets
from jaxrl.reports import pages
from tests.envs.tasks.test_pick_place_phases import GRASPS, SUCCESSES
from tests.helpers import browser
from tests.helpers import run_folders as folders

pytestmark = pytest.mark.slow

PHONE, DESK = (390, 844), (1200, 900)
# How far anything reaches beyond the screen; what scrolls by itself may.
OVERHANG = """Math.max(...[...document.querySelectorAll("main *")]
  .filter((e) => !e.closest(".scroll") || e.matches(".scroll"))
  .map((e) => e.getBoundingClientRect().right)) - innerWidth"""


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    """Two pages, one of all there is and one that compares; shown in one browser."""
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
    with browser.opened(place / "one.html", place / "home") as shown:
        yield shown, place


def _settled(tab, size, dark=False):
    tab.resize(*size, dark=dark)
    tab.until(f"innerWidth === {size[0]}")


@pytest.mark.parametrize("name", ["one", "all"])
def test_nothing_reaches_beyond_a_phone_and_nothing_is_fetched(tab, name):
    tab, place = tab
    _settled(tab, PHONE)
    tab.go(place / f"{name}.html")
    assert tab.ask("document.documentElement.scrollWidth") <= 390
    assert tab.ask(OVERHANG) <= 0
    narrow = tab.picture()
    _settled(tab, DESK)
    assert tab.ask(OVERHANG) <= 0
    wide = tab.picture()
    for picture, size in ((narrow, PHONE), (wide, DESK)):
        assert picture.shape == (size[1], size[0], 3) and picture.std() > 10
    assert not tab.errors
    assert [url for url in tab.requests if not url.startswith(("file:///", "data:"))] == []


def test_letters_keep_their_size_and_curves_use_the_room(tab):
    tab, place = tab
    tab.go(place / "one.html")
    seen = []
    for size in (PHONE, DESK):
        _settled(tab, size)
        box = 'document.querySelector(".large svg").getBoundingClientRect()'
        letters = 'getComputedStyle(document.querySelector(".plot .x")).fontSize'
        seen.append((tab.ask(f"{box}.width"), tab.ask(letters)))
    (narrow, small), (wide, large) = seen
    assert small == large == "11px"
    assert narrow > 250 and wide > 900


def test_a_pointer_reads_the_values_beneath_it(tab):
    tab, place = tab
    tab.go(place / "one.html")
    _settled(tab, DESK)
    told = 'document.querySelector(".large figcaption").innerText.replace(/\\s+/g, " ")'
    assert "evaluation 45" in tab.ask(told)
    box = 'document.querySelector(".large svg").getBoundingClientRect()'
    x, y, width = (tab.ask(f"{box}.{side}") for side in ("x", "y", "width"))
    tab.move(x + 0.31 * width, y + 50)  # nearest to the third of ten points
    tab.until(f"{told}.includes('at 3,000')")
    assert "evaluation 10" in tab.ask(told)
    tab.move(5, 5)
    tab.until(f"{told}.includes('evaluation 45')")


def test_a_video_plays_within_the_page(tab):
    tab, place = tab
    tab.go(place / "one.html")
    _settled(tab, DESK)
    tab.ask("onmessage = (event) => { window.heard = event.data; }; 0")
    frame = 'document.querySelector("iframe")'
    assert tab.ask(f"{frame}.contentDocument") is None  # it cannot reach this page
    tab.ask(f"{frame}.srcdoc += ' '; 0")  # once more, now that somebody listens
    tab.ask(f"{frame}.scrollIntoView()")
    tab.until("window.heard === 'plays'")


def test_night_has_its_own_colours(tab):
    tab, place = tab
    tab.go(place / "one.html")
    _settled(tab, DESK)
    day = tab.picture()
    _settled(tab, DESK, dark=True)
    night = tab.picture()
    assert np.median(day) > 230 and np.median(night) < 50
    assert night.max() > 180  # and letters that can be read
