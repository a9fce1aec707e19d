"""The processes of a run: how they find each other, what they agree on, how they end.

All processes run the same host loop on the same numbers, so they decide alike. What they cannot
know alike (signals, callbacks, names of folders) is exchanged here. A run on one process never
waits in this module.
"""

import contextlib
import functools
import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import jax
import numpy as np

from jaxrl.errors import UserError, first_line
from jaxrl.types import PyTree
from jaxrl.utils import compilation_cache, liveness

_CONTACT = ("Gloo", "NCCL", "coordination service", "Connection closed")  # in errors of collectives
_LEAVING = 1.0  # seconds for the others to leave
_FAILING = 5.0  # seconds for them to say why
_LATER = 60  # seconds that JAX waits for longer than we do
_LONGEST = 1200.0  # seconds that a process may wait for the work of others
_A_WEEK = 7 * 86400.0  # seconds; a process that is lost meanwhile is found by `_watch`
resume_command = ""  # said when another process is lost; set when there is something to continue
_heartbeat = 60  # seconds
_connection: liveness.Hub | liveness.Spoke | None = None  # to the other processes
_ending = threading.Event()  # set when all processes end together
_met = threading.Event()  # set when all have come to that end
_parting = threading.Event()  # set when this one may leave: all have come, or one never will
_exiting = threading.Event()  # set when this one ends after a failure


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
    met = f"to {coordinator} " if coordinator else ""
    never_came = (
        f"Only some of {processes or 'the'} processes connected {met}within {timeout} s. Start "
        "one for each --distributed.process from 0 on, or give a longer --distributed.timeout."
    )
    # JAX aborts process 0 when others do not come, so it is given more time than this.
    waiting = threading.Timer(timeout, _give_up, [never_came])
    waiting.daemon = True
    waiting.start()
    try:
        jax.distributed.initialize(
            coordinator,
            processes,
            process,
            initialization_timeout=timeout + _LATER,
            heartbeat_timeout_seconds=heartbeat,
        )
    except Exception as error:
        if coordinator is not None:
            raise UserError(f"{never_came} ({first_line(error)})") from error
        raise UserError(
            "--distributed auto found no scheduler that names the processes "
            f"({first_line(error)}). Name them: --distributed.coordinator HOST:PORT, "
            ".processes N and .process I."
        ) from error
    finally:
        waiting.cancel()
    global _heartbeat
    _heartbeat = heartbeat
    compilation_cache.store_on_every_process()
    if count() > 1:
        threading.Thread(target=_watch, args=(heartbeat,), daemon=True).start()
        _connect(timeout)


def _give_up(why: str) -> None:
    os.write(2, f"error: {why}\n".encode())
    os._exit(2)


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

    Its messages go through the coordination service. All processes make them in the same order,
    and each one's steps in one thread.
    """

    _numbers = itertools.count()

    def __init__(self, timeout: float = _LONGEST) -> None:
        self._number, self._timeout = next(self._numbers), timeout
        self._steps, self._last = itertools.count(), ""

    def gather(self, work: Callable[[], str]) -> list[str]:
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
        answers = self._exchange(answer)  # of all: none still works when a failure is raised
        if failure is not None:
            raise failure
        for rank, each in enumerate(answers):
            if each.startswith("!"):
                raise OSError(f"process {rank}: {each[1:]}")
        return [each[1:] for each in answers]

    def _exchange(self, answer: str) -> list[str]:
        """Return the answers of all, which process 0 collects: three messages for each process."""
        store, until = _store(), time.monotonic() + self._timeout
        step = f"jaxrl/{self._number}/{next(self._steps)}"
        if not is_main():
            store.key_value_set(f"{step}/{index()}", answer)
            return json.loads(_received(store, f"{step}/all", 0, until))
        others = (_received(store, f"{step}/{rank}", rank, until) for rank in range(1, count()))
        answers = [answer, *others]
        store.key_value_set(f"{step}/all", json.dumps(answers))
        if self._last:  # which all have read, since they are here
            store.key_value_delete(self._last)
        self._last = step
        return answers


def _received(store: Any, key: str, sender: int, until: float) -> str:
    try:
        return store.blocking_key_value_get(key, max(int(1000 * (until - time.monotonic())), 1))
    except Exception as error:
        raise OSError(f"process {sender} did not answer: {first_line(error)}") from error


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

    text = _arrays().gather(work)[0]
    return [np.array(values, dtype) for dtype, values in json.loads(text)]


@functools.cache
def _arrays() -> Rendezvous:
    return Rendezvous(_A_WEEK)


def _store() -> Any:
    """Return the client of JAX's coordination service, which has no public name."""
    from jax._src import distributed

    return distributed.global_state.client


def _connect(timeout: int) -> None:
    """Open the connections that tell when a process ends."""
    global _connection
    store, key = _store(), "jaxrl/liveness"
    if is_main():
        _connection = liveness.Hub(_ended, _heartbeat)
        return store.key_value_set(key, _connection.address)
    liveness.delay_aborts()
    with contextlib.suppress(OSError, RuntimeError):  # a firewall: heartbeats must do
        address = store.blocking_key_value_get(key, 1000 * timeout)
        _connection = liveness.Spoke(_host_of_main(), address, index(), _ended, _heartbeat)


def _host_of_main() -> str:
    from jax._src import distributed

    return (distributed.global_state.coordinator_address or "").rpartition(":")[0].strip("[]")


def _ended(rank: int, why: str) -> None:
    """End this process since another one has: by a failure that it names, or without a word.

    When all processes end, `finish` does so.
    """
    if _ending.is_set():
        return _parting.set()
    if why:
        _exiting.wait(_LEAVING)  # set if this process has failed as well, and says so itself
    if not _ending.is_set() and not _exiting.is_set():
        end(why or f"process {rank} of {count()} was lost")


def _watch(heartbeat: int) -> None:
    """End this process when another one has sent no heartbeats."""
    store, others, silent = _store(), list(range(count())), 0.0
    every = min(5.0, heartbeat / 4)
    while not _parting.wait(every):
        try:  # also when leaving: the call of others returns when all have made it
            live, silent = set(store.get_live_nodes(others)), 0.0
            lost = [rank for rank in others if rank not in live]
        except Exception:  # process 0, which hosts the service, does not answer
            silent += every
            lost = [0] if silent > heartbeat / 2 else []
        if lost:
            _ended(lost[0], "")


def lost_contact(error: BaseException) -> bool:
    """Tell whether an error says that another process could not be reached."""
    return count() > 1 and any(word in str(error) for word in _CONTACT)


def end(why: str) -> None:
    """End this process at once: others are gone, so nothing can be saved together."""
    _exiting.set()
    hint = f" Continue with: {resume_command}" if resume_command else ""
    _exit(1, why, f"\nerror: {why}; process {index()} stops.{hint}\n")


def _notify_others(why: str) -> None:
    """Let the others end first: JAX aborts them once process 0 is gone."""
    _exiting.set()
    if _connection is not None:
        _connection.notify(why, _FAILING)


def wait_for_watch() -> None:
    """Wait until `_watch` knows which process was lost, and ends this one.

    If none was, the error that seemed to say so is raised.
    """
    time.sleep(2 * _heartbeat)


def finish(status: int = 0) -> None:
    """End together: process 0, which hosts the coordination service, is the last to leave.

    Everything is saved by now: if another process is lost here, this one exits with its status.
    """
    if count() == 1:
        return
    _ending.set()
    threading.Thread(target=_meet, daemon=True).start()
    _parting.wait(_LONGEST)
    if not _met.is_set():
        _exit(status, "another process was lost")  # JAX's shutdown would wait for it, or abort
    if is_main():
        time.sleep(_LEAVING)
    with contextlib.suppress(Exception):
        jax.distributed.shutdown()


def _meet() -> None:
    """Wait for all processes; JAX's service would wait to the end for one that was lost."""
    with contextlib.suppress(Exception):
        _store().wait_at_barrier("jaxrl/finish", int(1000 * _LONGEST))
        _met.set()
    _parting.set()


def leave(status: int, text: str = "") -> None:
    """After a failure, exit without waiting for the others, who may wait for this one."""
    if status and count() > 1 and not _ending.is_set():
        _exit(status, f"process {index()} of {count()} failed", text)


def _exit(status: int, why: str, text: str = "") -> NoReturn:
    """Exit at once: print a text here, and tell the others why."""
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os.write(2, text.encode())
    _notify_others(why)
    os._exit(status)
