"""A live view of a run: its newest policy as a page in the browser, drawn again as it learns."""

import contextlib
import tempfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from jaxrl.errors import UserError

_WAITING = b"<!doctype html><title>jaxrl</title><body>Waiting for the first policy ..."
# The page's own policy forbids all connections; this one may ask its server.
_CLOSED, _OPEN = b"default-src 'none'", b"default-src 'none'; connect-src 'self'"
# Asks twice a second whether there is a newer page.
_RELOAD = b"""
<script>
let shown = null;
setInterval(async () => {
  const version = await (await fetch("version")).text();
  if (shown !== null && version !== shown) location.reload();
  shown = version;
}, 500);
</script>
"""


class LivePage:
    """The page that is served, and how often it has changed."""

    def __init__(self) -> None:
        self._content, self._version = _WAITING, 0
        self._lock = threading.Lock()

    def show(self, content: bytes) -> None:
        """Replace the page."""
        content = content.replace(_CLOSED, _OPEN)
        with self._lock:
            self._content, self._version = content, self._version + 1

    def answer(self, path: str) -> bytes | None:
        """Return what a path of the server holds; None if nothing."""
        with self._lock:
            found = {"/": self._content + _RELOAD, "/version": str(self._version).encode()}
        return found.get(path)


@contextlib.contextmanager
def serving(page: LivePage, port: int) -> Iterator[str]:
    """Serve a page on this machine only; return its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the name that http.server calls
            content = page.answer(self.path)
            self.send_response(404 if content is None else 200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, format: str, *args: object) -> None:
            del format, args  # two lines a second would hide everything else

    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except OSError as error:
        raise UserError(f"--port {port}: {error.strerror}: choose another one.") from error
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()


def newest_policy(run: Path) -> tuple[str, int] | None:
    """Return the name of the policy that was written last, and when; None if there is none."""
    files = [(file.stat().st_mtime_ns, file.stem) for file in run.glob("policies/*.npz")]
    return (max(files)[1], max(files)[0]) if files else None


def watch(
    run: Path,
    render: Callable[[str, Path], None],
    show: Callable[[bytes], None],
    pause: Callable[[], bool],
) -> None:
    """Draw each new policy of a run, until `pause`, which waits a while, returns True."""
    shown = None
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.html"
        while not pause():
            newest = newest_policy(run)
            if newest is not None and newest != shown:
                render(newest[0], file)
                show(file.read_bytes())
                shown = newest


def follow(run: Path, render: Callable[[str, Path], None], port: int) -> None:
    """Serve the newest policy of a run until Ctrl-C; the run may train in another process.

    Args:
      run: the run folder.
      render: (policy, file) -> None, draws a policy as a page.
      port: of the server; 0 chooses a free one.
    """
    page = LivePage()
    with serving(page, port) as address:
        print(f"live view at {address} (Ctrl-C ends it)", flush=True)
        watch(run, render, page.show, lambda: threading.Event().wait(1.0))
