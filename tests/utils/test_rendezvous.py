"""Steps that several processes finish together, with a store in place of JAX's service."""

import threading

import pytest

from jaxrl.utils import processes

NUMBER = 4
RANK = threading.local()


class Store:
    """What the coordination service does, counting the calls."""

    def __init__(self):
        self.values, self.calls, self.changed = {}, 0, threading.Condition()

    def key_value_set(self, key, value):
        with self.changed:
            self.calls += 1
            self.values[key] = value
            self.changed.notify_all()

    def blocking_key_value_get(self, key, milliseconds):
        with self.changed:
            self.calls += 1
            if not self.changed.wait_for(lambda: key in self.values, milliseconds / 1000):
                raise RuntimeError("DEADLINE_EXCEEDED: timed out")
            return self.values[key]

    def key_value_delete(self, directory):
        with self.changed:
            self.calls += 1
            for key in [key for key in self.values if key.startswith(f"{directory}/")]:
                del self.values[key]


@pytest.fixture
def store(monkeypatch):
    made = Store()
    monkeypatch.setattr(processes, "_store", lambda: made)
    monkeypatch.setattr(processes, "count", lambda: NUMBER)
    monkeypatch.setattr(processes, "index", lambda: RANK.number)
    return made


def on_each(work, numbers=range(NUMBER), timeout=10.0):
    """Run work(rank, together) in a thread for each rank; return what each returned or raised."""
    shared, ended = processes.Rendezvous(timeout), {}

    def run(rank):
        RANK.number = rank
        own = processes.Rendezvous(timeout)
        own._number = shared._number
        try:
            ended[rank] = work(rank, own)
        except Exception as error:
            ended[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [ended[rank] for rank in numbers]


def test_all_learn_all_answers_by_few_messages_that_are_removed(store):
    def work(rank, together):
        return [together.gather(lambda step=step: f"{rank} at {step}") for step in range(5)]

    expected = [[f"{rank} at {step}" for rank in range(NUMBER)] for step in range(5)]
    assert on_each(work) == [expected] * NUMBER
    assert store.calls <= 5 * 3 * NUMBER
    assert {key.split("/")[2] for key in store.values} == {"4"}  # of the last step only


def test_failure_of_one_is_raised_by_all_when_all_have_ended(store):
    def work(rank, together):
        def step():
            if rank == 2:
                raise ValueError("no room")
            return ""

        together.gather(step)

    errors = on_each(work)
    assert [type(error) for error in errors] == [OSError, OSError, ValueError, OSError]
    assert str(errors[0]) == "process 2: no room"


def test_process_that_does_not_answer_is_named(store):
    errors = on_each(lambda rank, together: together.gather(str), range(NUMBER - 1), timeout=0.1)
    assert str(errors[0]).startswith("process 3 did not answer: DEADLINE_EXCEEDED")
