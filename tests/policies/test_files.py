"""Invalid policy and reward files raise a UserError that names the file."""

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
def arrays(tmp_path_factory):
    """The arrays of a valid policy file, including its header."""
    file = tmp_path_factory.mktemp("policy") / "policy.npz"
    shapes = policies._abstract_params(actor_critic.build(SPEC, SMALL), SPEC)
    params = jax.tree.map(lambda s: np.zeros(s.shape, s.dtype), shapes)
    files.write(file, params, SPEC, SMALL, {"env": "x"})
    with np.load(file) as data:
        return {name: data[name] for name in data.files}


@pytest.fixture
def file(tmp_path):
    return tmp_path / "policy.npz"


def write_with_header(arrays, file, header):
    text = header if isinstance(header, str) else json.dumps(header)
    np.savez(file, **arrays | {"policy.json": np.array(text)})


def test_valid_file_loads(arrays, file):
    np.savez(file, **arrays)
    policy = policies.load_policy(file)
    assert policy.info == {"env": "x"} and policy(np.zeros(3)).shape == (2,)
    assert repr(policy).endswith("observations (3,), 2 continuous actions>")
    with pytest.raises(UserError, match="takes observations as arrays, not 'x'"):
        policy("x")
    np.testing.assert_array_equal(policy([0.5, 1, 2]), policy(np.float32([0.5, 1, 2])))
    with pytest.raises(UserError, match=r"not \(4,\)"):
        policy([0.5, 1, 2, 3])


def replacements():
    """Return pairs of a header field and a value of a wrong type."""
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


def test_wrong_header_types_raise_user_errors(arrays, file):
    """Some replacements still describe a valid network; only UserError may be raised."""
    header = json.loads(str(arrays["policy.json"]))
    allowed = {"tokens": ([],), "info": ({}, {"x": 1}), "action.discrete": (True,)}
    allowed["network.rnn_size"] = (-1, 0, 2**31, 2**63)  # ignored without an RNN
    for number, (path, value) in enumerate(replacements()):
        if any(type(value) is type(v) and value == v for v in allowed.get(path, ())):
            continue
        write_with_header(arrays, file, replaced(header, path, value))
        load = reward_files.load_reward if number % 8 == 0 else policies.load_policy
        with pytest.raises(UserError, match="policy.npz"):
            load(file)


def test_missing_header_fields_are_named(arrays, file):
    header = json.loads(str(arrays["policy.json"]))
    for name in ("obs", "action", "network", "info"):
        write_with_header(arrays, file, {k: v for k, v in header.items() if k != name})
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
def test_malformed_header_text_is_rejected(arrays, file, header, message):
    write_with_header(arrays, file, header)
    with pytest.raises(UserError, match=f"policy.npz'.*{message}"):
        policies.load_policy(file)


def test_non_text_header_is_rejected(arrays, file):
    for header in (np.zeros(3), np.array(["{}", "{}"]), np.array(b"{}")):
        np.savez(file, **arrays | {"policy.json": header})
        with pytest.raises(UserError, match="policy.json' is .*, not a text"):
            policies.load_policy(file)
    np.savez(file, x=np.zeros(3))
    with pytest.raises(UserError, match="has no 'policy.json'"):
        policies.load_policy(file)


def test_only_arrays_the_network_needs_are_read(arrays, file, monkeypatch):
    """A small file may decompress to very large arrays."""
    names_read, read = [], npz.Archive.read
    monkeypatch.setattr(
        npz.Archive, "read", lambda s, name: (names_read.append(name), read(s, name))[1]
    )
    np.savez_compressed(file, **arrays, extra=np.zeros(2**22))
    policies.load_policy(file)
    assert names_read == list(arrays)
    name = next(name for name in arrays if name.endswith("kernel"))
    np.savez_compressed(file, **arrays | {name: np.zeros((2**11, 2**11))})
    with pytest.raises(UserError, match=rf"leaf {name} is \(2048, 2048\), the network needs"):
        policies.load_policy(file)
    assert names_read[len(arrays) :] == ["policy.json"]


def test_policy_larger_than_memory_is_rejected(arrays, file, monkeypatch):
    np.savez(file, **arrays)
    monkeypatch.setattr(host_memory, "available", lambda: 200)
    with pytest.raises(UserError, match="too large to be read"):
        policies.load_policy(file)


@pytest.mark.parametrize(
    "name, value",
    [
        ("network.hidden", [4] * 100_000),
        ("network.rnn_layers", 100_000),
        ("network.residual_blocks", 50_000),
    ],
)
def test_header_with_more_layers_than_arrays_is_rejected(name, value, arrays, file):
    header = json.loads(str(arrays["policy.json"]))
    write_with_header(arrays, file, replaced(header, name, value))
    with pytest.raises(UserError, match=r"names 10000\d layers"):
        policies.load_policy(file)


def test_non_numeric_arrays_are_rejected(arrays, file):
    name = next(name for name in arrays if name.endswith("bias"))
    np.savez(file, **arrays | {name: np.full(arrays[name].shape, "x")})
    with pytest.raises(UserError, match=f"'{name}' holds <U1, not numbers"):
        policies.load_policy(file)


def test_command_prints_the_error(arrays, file, capsys):
    write_with_header(arrays, file, {"format": 1})
    assert export.main([str(file)]) == 2
    assert "it has no 'obs'" in capsys.readouterr().err
