"""A headless Chromium, controlled by the DevTools protocol over a pipe."""

import base64
import contextlib
import io
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Software rendering, and no network requests by the browser itself.
_FLAGS = (
    "--headless=new --remote-debugging-pipe --no-sandbox --no-first-run --disable-gpu-sandbox "
    "--use-angle=swiftshader --enable-unsafe-swiftshader --disable-background-networking "
    "--disable-dev-shm-usage --disable-component-update --disable-sync --window-size=960,640"
)
# The browser reads commands from file descriptor 3 and answers on 4.
_START = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
os.dup2(ends[0], 3), os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def found() -> str | None:
    """Return the path of an installed Chromium, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextlib.contextmanager
def opened(file: Path, home: Path) -> Iterator["Tab"]:
    """Open a file in a new browser with its profile in `home`."""
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    program = [found(), *_FLAGS.split(), f"--user-data-dir={home}", "about:blank"]
    starter = [sys.executable, "-c", _START, str(to_read), str(from_write), *program]
    process = subprocess.Popen(
        starter,
        pass_fds=(to_read, from_write),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_read)
    os.close(from_write)
    try:
        yield Tab(to_write, from_read).open(file)
    finally:
        process.kill()
        process.wait()
        os.close(to_write)
        os.close(from_read)


class Tab:
    """One browser tab."""

    def __init__(self, to: int, back: int):
        self._to, self._back, self._rest = to, back, b""
        self._numbers, self._session = itertools.count(1), None
        self.requests, self.errors = [], []

    def open(self, file: Path) -> "Tab":
        target = self._do("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._do("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Network", "Runtime", "Page", "Log"):
            self._do(f"{domain}.enable")
        self.go(file)
        return self

    def go(self, file: Path) -> None:
        """Navigate to another file."""
        self._do("Page.navigate", url=file.as_uri())
        self.until(f"location.href === '{file.as_uri()}' && document.readyState === 'complete'")

    def ask(self, script: str):
        """Evaluate an expression in the page."""
        answer = self._do("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, script: str, seconds: float = 60.0) -> None:
        """Wait for an expression to become true."""
        end = time.monotonic() + seconds
        while not self.ask(script):
            assert time.monotonic() < end, f"never true: {script}; {self.errors}"
            time.sleep(0.05)

    def resize(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set the window size; narrow windows emulate a phone."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._do("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._do("Emulation.setEmulatedMedia", features=[scheme])

    def move(self, x: float, y: float) -> None:
        """Move the pointer to a position in the page."""
        self._do("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self) -> np.ndarray:
        """Return a screenshot, [height, width, 3]."""
        data = self._do("Page.captureScreenshot", format="png")["data"]
        return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"))

    def _do(self, method: str, **params):
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]
            self._record_event(answer)

    def _record_event(self, event: dict) -> None:
        name, params = event.get("method"), event.get("params", {})
        if name == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif name == "Runtime.exceptionThrown":
            self.errors.append(params["exceptionDetails"])
        elif name == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"])

    def _read(self, seconds: float = 120.0) -> dict:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._back], [], [], seconds)
            assert ready, "the browser does not respond"
            more = os.read(self._back, 1 << 16)
            assert more, "the browser exited"
            self._rest += more
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)
