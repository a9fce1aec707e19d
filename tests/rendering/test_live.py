"""The live view serves the newest policy of a run."""

import os
import urllib.error
import urllib.request

import pytest

from jaxrl import render
from jaxrl.rendering import html_viewer, live


def _get(address):
    with urllib.request.urlopen(address, timeout=10) as answer:
        return answer.read().decode()


def test_each_new_policy_is_drawn_once(tmp_path):
    (tmp_path / "policies").mkdir()
    shown, steps = [], iter([None, None, "best", None, "256", "best", None])

    def pause():
        """Write the next policy, if there is one."""
        name = next(steps, "end")
        if name not in (None, "end"):
            file = tmp_path / "policies" / f"{name}.npz"
            file.write_bytes(b"")
            os.utime(file, ns=(len(shown) + 1,) * 2)
        return name == "end"

    def draw(policy, file):
        file.write_text(f"policy {policy}")

    live.watch(tmp_path, draw, shown.append, pause)
    assert shown == [b"policy best", b"policy 256", b"policy best"]


def test_browser_sees_a_new_version_of_each_page():
    page, seen = live.LivePage(), []
    with live.serving(page, 0) as address:
        assert "Waiting for the first policy" in _get(address)
        for number in range(2):
            seen.append(_get(address + "version"))
            page.show(b"<meta content=\"default-src 'none'\">page %d" % number)
        assert "page 1" in (text := _get(address)) and "connect-src 'self'" in text
        assert [*seen, _get(address + "version")] == ["0", "1", "2"]
    with pytest.raises(urllib.error.URLError):
        _get(address)  # it has ended


def test_only_the_page_and_its_version_are_served():
    page = live.LivePage()
    with live.serving(page, 0) as address, pytest.raises(urllib.error.HTTPError, match="404"):
        _get(address + "../etc/passwd")


def test_pages_have_the_policy_that_is_opened():
    assert live._CLOSED in (html_viewer._WEB / "page.html").read_bytes()


@pytest.mark.parametrize(
    "flags, problem",
    [
        (["--follow", "--out", "x.gif"], "leave out --out and --policy"),
        (["--follow", "--port", "70000"], "--port must be from 0 to 65535"),
    ],
)
def test_invalid_flags_are_refused(flags, problem, tmp_path, capsys):
    assert render.main([str(tmp_path), *flags]) == 2
    assert problem in " ".join(capsys.readouterr().err.split())
