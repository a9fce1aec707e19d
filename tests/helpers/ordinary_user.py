"""Run a function with the rights of an ordinary user, also where the tests run as root."""

import ctypes
import os
import threading
from collections.abc import Callable
from typing import Any

_CAPSET = {"x86_64": 126, "aarch64": 91}
_VERSION_3 = 0x20080522


def call(function: Callable[[], Any]) -> Any:
    """Return what the function returns, called by a thread that permissions of files apply to.

    Root has the capability to read and write everything. Capabilities belong to threads: a new one
    gives all of them up, and root then owns its files as anybody does.
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
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)  # of this thread
    none = (ctypes.c_uint32 * 6)()  # effective, permitted and inheritable, of two words
    if libc.syscall(_CAPSET[os.uname().machine], header, none):
        raise OSError(ctypes.get_errno(), "capset failed")
