"""Policy and reward files from elsewhere: a sentence for everything that is wrong with them."""

import copy
import json

import jax
import numpy as np
import pytest

from jaxrl import export
from jaxrl.config import NetworkConfig
from jaxrl.errors import UserError
from jaxrl.networks import actor_critic
from jaxrl.policies import files, reward_files
from jaxrl.policies import load as policies
from jaxrl.types import ActionSpec, EnvSpec
from jaxrl.utils import host_memory, npz

SPEC = EnvSpec(jax.ShapeDtypeStruct((3,), np.float32), ActionSpec(2, False))
SMALL = NetworkConfig(hidden=(4,), critic_hidden=(4,))
NESTED = "[" * 50_000


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The arrays of a policy file, its header among them."""
    file = tmp_path_factory.mktemp("policy") / "policy.npz"
    shapes = policies._abstract_params(actor_critic.build(SPEC, SMALL), SPEC)
    params = jax.tree.map(lambda s: np.zeros(s.shape, s.dtype), shapes)
    files.write(file, params, SPEC, SMALL, {"env": "x"})
    with np.load(file) as data:
        return {name: data[name] for name in data.files}


@pytest.fixture
def file(tmp_path):
    return tmp_path / "policy.npz"


def with_header(whole, file, header):
    text = header if isinstance(header, str) else json.dumps(header)
    np.savez(file, **whole | {"policy.json": np.array(text)})


def test_a_whole_file_is_read(whole, file):
    np.savez(file, **whole)
    policy = policies.load_policy(file)
    assert policy.info == {"env": "x"} and policy(np.zeros(3)).shape == (2,)


def replacements():
    """Return every field of a header, down to the leaves, with values of wrong types."""
    wrong = [None, True, -1, 0, 2**31, 2**63, 1e400, "x", [], {}, ["x"], [-1], {"x": 1}, [[[]]]]
    paths = ["obs", "obs.shape", "obs.dtype", "action", "action.size", "action.discrete", "tokens"]
    paths += ["network", "network.hidden", "network.activation", "network.rnn_size", "info"]
    return [(path, value) for path in [*paths, "format"] for value in wrong]


def replaced(header, path, value):
    header = copy.deepcopy(header)
    *parents, last = path.split(".")
    part = header
    for name in parents:
        part = part[name]
    part[last] = value
    return header


def test_headers_of_wrong_types_are_refused_in_a_sentence(whole, file):
    """Some replacements describe a network all the same; no other error may be raised."""
    header = json.loads(str(whole["policy.json"]))
    allowed = {"tokens": ([],), "info": ({}, {"x": 1}), "action.discrete": (True,)}
    allowed["network.rnn_size"] = (-1, 0, 2**31, 2**63)  # a network without memory ignores it
    for number, (path, value) in enumerate(replacements()):
        if any(type(value) is type(v) and value == v for v in allowed.get(path, ())):
            continue
        with_header(whole, file, replaced(header, path, value))
        load = reward_files.load_reward if number % 8 == 0 else policies.load_policy
        with pytest.raises(UserError, match="policy.npz"):
            load(file)


def test_fields_that_are_missing_are_named(whole, file):
    header = json.loads(str(whole["policy.json"]))
    for name in ("obs", "action", "network", "info"):
        with_header(whole, file, {k: v for k, v in header.items() if k != name})
        with pytest.raises(
            UserError, match=f"policy.npz' has an invalid header: it has no '{name}'"
        ):
            policies.load_policy(file)


@pytest.mark.parametrize(
    "header, message",
    [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        (NESTED, "not valid JSON"),
        ("[]", "has format None"),
        ("3", "has format None"),
        ('{"format": 2}', "has format 2"),
        ('{"format": true}', "has format True"),
        ('{"format": 1, "obs": ' + '{"a":' * 900 + "1" + "}" * 901, "header|JSON"),
    ],
)
def test_texts_that_are_no_header_are_refused(whole, file, header, message):
    with_header(whole, file, header)
    with pytest.raises(UserError, match=f"policy.npz'.*{message}"):
        policies.load_policy(file)


def test_a_header_that_is_no_text_is_refused(whole, file):
    for header in (np.zeros(3), np.array(["{}", "{}"]), np.array(b"{}")):
        np.savez(file, **whole | {"policy.json": header})
        with pytest.raises(UserError, match="policy.json' is .*, not a text"):
            policies.load_policy(file)
    np.savez(file, x=np.zeros(3))
    with pytest.raises(UserError, match="has no 'policy.json'"):
        policies.load_policy(file)


def test_nothing_is_read_that_the_network_does_not_need(whole, file, monkeypatch):
    """A file of little may unpack to very much."""
    reading, read = [], npz.Archive.read
    monkeypatch.setattr(
        npz.Archive, "read", lambda s, name: (reading.append(name), read(s, name))[1]
    )
    np.savez_compressed(file, **whole, extra=np.zeros(2**22))
    policies.load_policy(file)
    assert reading == list(whole)
    name = next(name for name in whole if name.endswith("kernel"))
    np.savez_compressed(file, **whole | {name: np.zeros((2**11, 2**11))})
    with pytest.raises(UserError, match=rf"leaf {name} is \(2048, 2048\), the network needs"):
        policies.load_policy(file)
    assert reading[len(whole) :] == ["policy.json"]


def test_a_network_that_does_not_fit_into_memory_is_not_read(whole, file, monkeypatch):
    np.savez(file, **whole)
    monkeypatch.setattr(host_memory, "available", lambda: 200)
    with pytest.raises(UserError, match="too large to be read"):
        policies.load_policy(file)


def test_a_header_with_more_layers_than_arrays_is_not_built(whole, file):
    header = json.loads(str(whole["policy.json"]))
    with_header(whole, file, replaced(header, "network.hidden", [4] * 100_000))
    with pytest.raises(UserError, match="names 100000 layers"):
        policies.load_policy(file)


def test_arrays_that_are_no_numbers_are_refused(whole, file):
    name = next(name for name in whole if name.endswith("bias"))
    np.savez(file, **whole | {name: np.full(whole[name].shape, "x")})
    with pytest.raises(UserError, match=f"'{name}' holds <U1, not numbers"):
        policies.load_policy(file)


def test_commands_end_with_the_sentence(whole, file, capsys):
    with_header(whole, file, {"format": 1})
    assert export.main([str(file)]) == 2
    assert "it has no 'obs'" in capsys.readouterr().err
