"""The processes of a run: how they find each other, what they agree on, how they end.

All processes run the same host loop on the same numbers, so they decide alike. What they cannot
know alike (signals, callbacks, names of folders) is exchanged here. A run on one process never
waits in this module.
"""

import contextlib
import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from jaxrl.errors import UserError, first_line
from jaxrl.types import PyTree

_CONTACT = ("Gloo", "NCCL", "coordination service", "Connection closed")  # in errors of collectives
_LEAVING = 1.0  # seconds for the others to leave
_LONGEST = 1200.0  # seconds that a process may wait for the work of others
_A_WEEK = 7 * 86400.0  # seconds; a process that is lost meanwhile is found by `_watch`
how_to_continue = ""  # said when another process is lost; set when there is something to continue
_heartbeat = 60  # seconds
_FAILURE, _LEFT = "jaxrl/failure", "jaxrl/left"  # keys: why process 0 leaves, who has left
_ending = threading.Event()  # set when all processes end together
_leaving = threading.Event()  # set when this one ends after a failure


def start(
    coordinator: str | None = None,
    processes: int | None = None,
    process: int | None = None,
    heartbeat: int = 60,
    timeout: int = 300,
) -> None:
    """Join the other processes, before JAX is used; without arguments a scheduler names them.

    Args:
      coordinator: HOST:PORT of process 0.
      processes: their number.
      process: the number of this one.
      heartbeat: seconds after which a silent process is lost.
      timeout: seconds to wait for all processes.
    """
    # A lost process must not abort this one before it can name it: `_watch` ends it instead.
    jax.config.update("jax_enable_recoverability", True)
    # Programs that run at the same time could reach their collectives in another order elsewhere.
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    try:
        jax.distributed.initialize(
            coordinator,
            processes,
            process,
            initialization_timeout=timeout,
            heartbeat_timeout_seconds=heartbeat,
        )
    except Exception as error:
        why = first_line(error)
        if coordinator is None:
            text = (
                f"--distributed auto found no scheduler that names the processes ({why}). Name "
                "them: --distributed.coordinator HOST:PORT, .processes N and .process I."
            )
        else:
            text = (
                f"Not all of {processes} processes met at {coordinator} within {timeout} s "
                f"({why}). Start one for each --distributed.process from 0 to "
                f"{(processes or 1) - 1}, or give a longer --distributed.timeout."
            )
        raise UserError(text) from error
    global _heartbeat
    _heartbeat = heartbeat
    if count() > 1:
        threading.Thread(target=_watch, args=(heartbeat,), daemon=True).start()


def count() -> int:
    """Return the number of processes."""
    return jax.process_count()


def index() -> int:
    """Return the number of this process."""
    return jax.process_index()


def is_main() -> bool:
    """Tell whether this process writes logs, policies and reports."""
    return index() == 0


def fetch(tree: PyTree) -> PyTree:
    """Copy arrays to the CPU of every process; all must call it for arrays that are split."""
    if count() == 1:
        return jax.device_get(tree)
    from jax.experimental import multihost_utils

    def whole(leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable or leaf.is_fully_replicated:
            return leaf
        return multihost_utils.process_allgather(leaf, tiled=True)

    return jax.device_get(jax.tree.map(whole, tree))


def largest(number: int) -> int:
    """Return the largest number of all processes, as in "has anyone been asked to stop?"."""
    return max(_gather(np.array(number, np.int64)).tolist()) if count() > 1 else number


def any_of(asked: bool) -> bool:
    """Tell whether a process was asked for something; all must call it."""
    return bool(largest(int(asked)))


def of_main(text: str) -> str:
    """Return the text of process 0 on every process."""
    return gather(text)[0] if count() > 1 else text


def gather(text: str) -> list[str]:
    """Return the text of every process."""
    if count() == 1:
        return [text]
    data = text.encode()
    room = largest(len(data))
    padded = np.zeros(room, np.uint8)
    padded[: len(data)] = np.frombuffer(data, np.uint8)
    lengths = _gather(np.array(len(data), np.int64))
    every = _gather(padded).reshape(count(), room)
    return [row[:length].tobytes().decode() for row, length in zip(every, lengths, strict=True)]


def _gather(value: np.ndarray) -> np.ndarray:
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(value))


def raise_together(error: str) -> None:
    """Raise a UserError on every process if one of them has an error; all must call it."""
    errors = gather(error)
    if error:
        raise UserError(error)
    for rank, text in enumerate(errors):
        if text:
            raise UserError(f"process {rank}: {text}")


class Rendezvous:
    """Work in steps that all processes finish before the next; safe in any thread.

    Its messages go through the coordination service. All processes make them in the same order.
    """

    _numbers = itertools.count()

    def __init__(self, timeout: float = _LONGEST) -> None:
        self._number, self._timeout = next(self._numbers), timeout

    def gather(self, step: str, work: Callable[[], str]) -> list[str]:
        """Return what the work of every process returned; raise if it failed on one.

        Raises:
          Exception: that of this process's work.
          OSError: the work of another process failed, or did not end in time.
        """
        if count() == 1:
            return [work()]
        failure, answer = None, ""
        try:
            answer = f"+{work()}"
        except Exception as error:
            failure, answer = error, f"!{error}"
        store, until = _store(), time.monotonic() + self._timeout
        store.key_value_set(self._key(step, index()), answer)
        answers = []
        for rank in range(count()):  # all of them: none still works when a failure is raised
            left = max(int(1000 * (until - time.monotonic())), 1)
            try:
                answers.append(store.blocking_key_value_get(self._key(step, rank), left))
            except Exception as error:
                raise OSError(f"process {rank} did not answer: {first_line(error)}") from error
        if failure is not None:
            raise failure
        for rank, each in enumerate(answers):
            if each.startswith("!"):
                raise OSError(f"process {rank}: {each[1:]}")
        return [each[1:] for each in answers]

    def _key(self, step: str, rank: int) -> str:
        return f"jaxrl/{self._number}/{step}/{rank}"


def arrays_of_main(make: Callable[[], Sequence[np.ndarray]]) -> list[np.ndarray]:
    """Return arrays that process 0 makes, on every process; the others wait for as long.

    Raises:
      Exception: that of `make`, on process 0.
      OSError: `make` failed on process 0.
    """
    if count() == 1:
        return list(make())

    def work() -> str:
        made = make() if is_main() else []
        return json.dumps([(array.dtype.str, array.tolist()) for array in made])

    text = Rendezvous(_A_WEEK).gather("arrays", work)[0]
    return [np.array(values, dtype) for dtype, values in json.loads(text)]


def _store() -> Any:
    """Return the client of JAX's coordination service, which has no public name."""
    from jax._src import distributed

    return distributed.global_state.client


def _interval() -> float:
    """Return the seconds between two looks at the other processes."""
    return min(5.0, _heartbeat / 4)


def _watch(heartbeat: int) -> None:
    """End this process when another one is lost, or when process 0 is about to leave."""
    store, others, silent = _store(), list(range(count())), 0.0
    every = _interval()
    while not _ending.wait(every):
        failure = ""
        with contextlib.suppress(Exception):  # mostly there is no such key
            failure = store.key_value_try_get(_FAILURE)
        if failure and not _leaving.wait(_LEAVING):  # set if this process has failed as well
            end(failure)
        try:  # also when leaving: the call of others returns when all have made it
            live, silent = set(store.get_live_nodes(others)), 0.0
            lost = [rank for rank in others if rank not in live]
        except Exception:  # process 0, which hosts the service, does not answer
            silent += every
            lost = [0] if silent > heartbeat / 2 else []
        if lost and not _ending.is_set() and not _leaving.is_set():
            end(f"process {lost[0]} of {len(others)} was lost")


def lost_contact(error: BaseException) -> bool:
    """Tell whether an error says that another process could not be reached."""
    return count() > 1 and any(word in str(error) for word in _CONTACT)


def end(why: str) -> None:
    """End this process at once: others are gone, so nothing can be saved together."""
    hint = f" Continue with: {how_to_continue}" if how_to_continue else ""
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    os.write(2, f"\nerror: {why}; process {index()} stops.{hint}\n".encode())
    _tell_others(why)
    os._exit(1)


def _tell_others(why: str) -> None:
    """Let the others end first: JAX ends them with a message of its own once process 0 is gone."""

    def tell() -> None:
        with contextlib.suppress(Exception):
            if not is_main():
                return _store().key_value_set(f"{_LEFT}/{index()}", "")
            _store().key_value_set(_FAILURE, why)
            for rank in range(1, count()):
                _store().blocking_key_value_get(f"{_LEFT}/{rank}", int(1000 * longest))

    _leaving.set()
    longest = 3 * _interval() if is_main() else _LEAVING
    telling = threading.Thread(target=tell, daemon=True)  # the service may not answer
    telling.start()
    telling.join(longest)


def wait_for_watch() -> None:
    """Wait until `_watch` knows which process was lost, and ends this one.

    If none was, the error that seemed to say so is raised.
    """
    time.sleep(2 * _heartbeat)


def finish() -> None:
    """End together: process 0, which hosts the coordination service, is the last to leave."""
    if count() == 1:
        return
    _ending.set()
    # Everything is saved: a process that does not come must not make this one fail.
    with contextlib.suppress(Exception):
        _store().wait_at_barrier("jaxrl/finish", int(1000 * _LONGEST))
        if is_main():
            time.sleep(_LEAVING)
        jax.distributed.shutdown()


def leave(status: int, text: str = "") -> None:
    """After a failure, exit without waiting for the others, who may wait for this one."""
    if status and count() > 1 and not _ending.is_set():
        os.write(2, text.encode())
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        _tell_others(f"process {index()} of {count()} failed")
        os._exit(status)
