"""Export a trained policy: as a portable JAX program, and as NumPy arrays.

policy.jax    JAX's export format with weights and normaliser, for any batch size
policy.npz    the same weights as plain arrays
policy.py     runs policy.npz with NumPy alone; a copy of `jaxrl.policies.numpy_policy`
"""

import importlib.resources
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import export

from jaxrl.algorithms import policy as policies
from jaxrl.config import NetworkConfig
from jaxrl.networks import actor_critic
from jaxrl.networks.recurrent import layer_names
from jaxrl.policies import files as network_files
from jaxrl.policies import load
from jaxrl.policies.load import LoadedPolicy
from jaxrl.types import EnvSpec, PyTree
from jaxrl.utils import atomic_io

PLATFORMS = ("cpu", "cuda", "tpu")


def write(file: Path, out: Path, network: str | None = None) -> list[str]:
    """Write every format that supports a policy; return messages for the user."""
    stored, policy = network_files.read(file), load.load_policy(file, network=network)
    out.mkdir(parents=True, exist_ok=True)
    with atomic_io.replacing(out / "policy.jax") as written:
        written.write(program(policy))
    remarks = [f"{out / 'policy.jax'}: {_signature(policy)}, for {', '.join(PLATFORMS)}"]
    if stored.config.module:
        return [*remarks, "No NumPy version: this policy has networks of its own."]
    if actor_critic.has_images(policy.spec):
        return [*remarks, "No NumPy version: this policy has image observations."]
    arrays, settings = numpy_arrays(policy.params, policy.spec, stored.config)
    with atomic_io.replacing(out / "policy.npz") as written:
        np.savez(written, allow_pickle=False, settings=np.array(json.dumps(settings)), **arrays)
    runner = (
        importlib.resources.files("jaxrl.policies").joinpath("numpy_policy.py").read_text("utf-8")
    )
    atomic_io.write_text(out / "policy.py", runner)
    remarks.append(f"{out / 'policy.npz'}, policy.py: the same with NumPy alone")
    if stored.config.precision != "float32":
        remarks.append(f"NumPy computes in float32, not {stored.config.precision}: nearly equal.")
    return remarks


def _signature(policy: LoadedPolicy) -> str:
    recurrent = jax.tree.leaves(policy.initial_carry(1))
    return "(obs, carry) -> (action, carry)" if recurrent else "obs -> action"


def program(policy: LoadedPolicy) -> bytes:
    """Return the deterministic policy as a serialised program of any batch size."""
    greedy, unused = policies.make_policy(policy.networks, True), jax.random.key(0)
    (batch,) = export.symbolic_shape("batch")

    def rows(tree: PyTree, *, skip: int) -> PyTree:
        return jax.tree.map(lambda s: jax.ShapeDtypeStruct((batch, *s.shape[skip:]), s.dtype), tree)

    def act(obs: PyTree) -> Any:
        return greedy(policy.params, obs, (), unused)[0]

    def act_recurrent(obs: PyTree, carry: PyTree) -> Any:
        return greedy(policy.params, obs, carry, unused)[:2]

    obs, carry = rows(policy.spec.obs, skip=0), rows(policy.initial_carry(1), skip=1)
    arguments = (obs, carry) if jax.tree.leaves(carry) else (obs,)
    function = act_recurrent if jax.tree.leaves(carry) else act
    return bytes(export.export(jax.jit(function), platforms=PLATFORMS)(*arguments).serialize())


def numpy_arrays(
    params: policies.PolicyParams, spec: EnvSpec, config: NetworkConfig
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the arrays that `numpy_policy` reads, and its settings."""
    weights = params.actor["params"]
    arrays = _normaliser(params, spec) | _layers(weights["MLP_0"], config)
    arrays |= {"head_w": weights["head"]["kernel"], "head_b": weights["head"]["bias"]}
    rnn = actor_critic.rnn_of(config, "actor")
    if rnn != "none":
        arrays |= _rnn_layers(weights, config)
    settings = {
        "keys": list(actor_critic.observed_keys(spec.obs)[0]),
        "tokens": list(spec.tokens),
        "layers": len(config.hidden),
        "residual_blocks": config.residual_blocks,
        "norm": config.norm,
        "activation": config.activation,
        "rnn": rnn,
        "rnn_layers": config.rnn_layers,
        "discrete": spec.action.discrete,
        "squashed": config.distribution != "normal",
        "actions": spec.action.size,
    }
    return {name: np.asarray(array, np.float32) for name, array in arrays.items()}, settings


def _layers(weights: dict[str, Any], config: NetworkConfig) -> dict[str, Any]:
    arrays = {}
    for i in range(len(config.hidden) + 2 * config.residual_blocks):
        dense = weights[f"Dense_{i}"]
        arrays |= {f"w{i}": dense["kernel"], f"b{i}": dense["bias"]}
        if config.norm == "layer":
            norm = weights[f"LayerNorm_{i}"]
            arrays |= {f"scale{i}": norm["scale"], f"offset{i}": norm["bias"]}
        if config.norm == "rms":
            arrays[f"scale{i}"] = weights[f"RMSNorm_{i}"]["scale"]
    if config.residual_blocks:
        arrays["last_scale"] = weights["last_norm"]["scale"]
    return arrays


def _rnn_layers(weights: dict[str, Any], config: NetworkConfig) -> dict[str, Any]:
    arrays = {}
    for i, name in enumerate(layer_names(config.rnn_layers)):
        cell, prefix = weights[name], f"rnn{i or ''}"
        arrays |= {f"{prefix}_w": cell["input"]["kernel"], f"{prefix}_b": cell["input"]["bias"]}
        if config.rnn != "mingru":
            arrays[f"{prefix}_recurrent"] = cell["recurrent"]
        if config.rnn == "gru":
            arrays[f"{prefix}_bias"] = cell["bias"]
    return arrays


def _normaliser(params: policies.PolicyParams, spec: EnvSpec) -> dict[str, Any]:
    """Return mean, deviation and clip of the concatenated observation; uint8 is not normalised."""
    if spec.tokens:
        return {}
    stats, keys = params.obs_stats, actor_critic.observed_keys(spec.obs)[0]

    def parts(tree: PyTree) -> list[Any]:
        return [tree[key] for key in keys] if keys else [tree]

    rows: list[list[np.ndarray]] = [[], [], []]
    has_data = float(stats.count) > 0
    triples = zip(parts(spec.obs), parts(stats.mean), parts(stats.variance), strict=True)
    for shape, mean, variance in triples:
        scaled = has_data and shape.dtype != np.uint8
        zeros = np.zeros(shape.shape, np.float32)
        rows[0].append(np.asarray(mean) if scaled else zeros)
        rows[1].append(np.sqrt(np.asarray(variance) + np.float32(1e-8)) if scaled else zeros + 1)
        rows[2].append(zeros + (stats.clip if scaled else np.inf))
    mean, deviation, clip = (np.concatenate(row, axis=-1) for row in rows)
    return {"mean": mean, "std": deviation, "clip": clip}
