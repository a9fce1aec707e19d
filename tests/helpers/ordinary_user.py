"""Run a function without root's privileges, even if the tests run as root."""

import ctypes
import os
import threading
from collections.abc import Callable
from typing import Any

_CAPSET = {"x86_64": 126, "aarch64": 91}
_VERSION_3 = 0x20080522


def call(function: Callable[[], Any]) -> Any:
    """Call the function in a thread that file permissions apply to, and return its result.

    Root has capabilities to read and write everything. Capabilities belong to threads, so a new
    thread drops all of them.
    """
    outcome: dict[str, Any] = {}

    def run() -> None:
        try:
            if os.geteuid() == 0:
                _drop_capabilities()
            outcome["value"] = function()
        except BaseException as error:
            outcome["error"] = error

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if "error" in outcome:
        raise outcome["error"]
    return outcome["value"]


def _drop_capabilities() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)  # pid 0: this thread
    none = (ctypes.c_uint32 * 6)()  # effective, permitted and inheritable sets, two words each
    if libc.syscall(_CAPSET[os.uname().machine], header, none):
        raise OSError(ctypes.get_errno(), "capset failed")
