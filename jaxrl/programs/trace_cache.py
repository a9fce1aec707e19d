"""Traced programs, cached between runs.

Tracing physics takes Python seconds, building its model some more. What comes of it depends on
the settings, the code and the versions alone, so it is cached beside JAX's own compilation cache,
as StableHLO in JAX's export format: the next run of the same settings begins at once.
"""

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import export
from jax.sharding import Mesh

from jaxrl.config import TrainConfig, env_names, settings
from jaxrl.envs.env_state import PackedEnvState, Template
from jaxrl.types import ActionSpec
from jaxrl.utils import atomic_io, npz, trees

MAX_FILES = 64  # older ones are removed
_PACKAGES = (
    *("jax", "jaxlib", "flax", "optax", "brax", "mujoco", "mujoco-mjx", "numpy"),
    *("playground", "warp-lang"),
)
_JAX_SETTINGS = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_numpy_rank_promotion",
    "jax_numpy_dtype_promotion",
    "jax_debug_nans",
)


class CachedPrograms(NamedTuple):
    """What a run needs to begin without tracing."""

    template: Template
    programs: dict[str, bytes]


class TraceCache(NamedTuple):
    """The cache file of a run's programs, and its contents if it exists."""

    path: Path
    stored: CachedPrograms | None


def find(config: TrainConfig, mesh: Mesh) -> TraceCache | None:
    """Look up the programs of a run; None where nothing can be cached."""
    path = location(config, mesh)
    if path is None:
        return None
    stored = load(path)
    needed = {"run_cycle", "sample", "init", *(["play"] if config.eval.num_envs else [])}
    return TraceCache(path, stored if stored and _are_programs(stored, needed) else None)


def _are_programs(stored: CachedPrograms, needed: set[str]) -> bool:
    """Tell whether all programs of a run are there and can be loaded."""
    try:
        for name in needed:
            export.deserialize(bytearray(stored.programs[name]))
    except Exception:  # bytes that are no program raise whatever their parser makes of them
        return False
    return True


def location(config: TrainConfig, mesh: Mesh) -> Path | None:
    """Return the file for these settings, or None where nothing can be cached.

    Code of the user's own may change without notice, and so may a teacher's policy, a learnt reward
    or a motion clip, or the model of a robot: programs made of them are always traced again.
    """
    directory = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    files = config.env in env_names.MOTION or env_names.reads_assets(config.env)
    own = files or env_names.is_gymnasium(config.env) or settings.compiles_own(config)
    switched_off = os.environ.get("JAXRL_CACHE_PROGRAMS") == "0"
    several = jax.process_count() > 1  # exported programs name the devices of one process
    if (
        directory is None
        or own
        or several
        or switched_off
        or not importlib.util.find_spec("flatbuffers")
    ):
        return None
    return Path(directory) / "jaxrl" / f"{_fingerprint(config, mesh)}.npz"


def _fingerprint(config: TrainConfig, mesh: Mesh) -> str:
    """Return a name for everything that the programs follow from."""
    parts: list[Any] = [
        settings.compiled(config),
        {name: _version(name) for name in _PACKAGES},
        {name: getattr(jax.config, name, None) for name in _JAX_SETTINGS},
        [platform.python_version(), mesh.size, [d.device_kind for d in mesh.devices.flat]],
    ]
    digest = hashlib.sha256(json.dumps(parts, default=str).encode())
    package = Path(__file__).parent.parent
    # The code, and the models it reads.
    for source in sorted([*package.rglob("*.py"), *package.rglob("*.xml")]):
        digest.update(str(source.relative_to(package)).encode() + source.read_bytes())
    return digest.hexdigest()[:32]


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def load(path: Path) -> CachedPrograms | None:
    """Read a cache file; None if there is none, or none that `save` wrote."""
    if not path.exists():
        return None
    try:
        with npz.opened(path) as archive:
            arrays = {name: archive.read(name) for name in archive.names}
        text, digest = str(arrays.pop("header")), str(arrays.pop("digest"))
        programs = {name: array.tobytes() for name, array in arrays.items()}
        if digest != _digest(text, programs):
            return None
        header = json.loads(text)
        template = Template(
            PackedEnvState(
                obs=trees.parse_shapes(header["obs"]),
                metrics=trees.parse_shapes(header["metrics"]),
                rest=tuple(trees.parse_shapes(header["rest"])),
            ),
            ActionSpec(**header["action"]),
            header["episode_length"],
            tuple(header["carried_leaves"]),
            header["agents"],
            tuple(header["tokens"]),
            _arrays(header["curriculum"]),
            _arrays(header["last_curriculum"]),
            key_leaves=tuple(header["key_leaves"]),
        )
        return CachedPrograms(template, programs)
    except Exception:  # a damaged file is no worse than none: it is written again
        return None


def save(path: Path, stored: CachedPrograms) -> None:
    """Write the programs of a run, and let the oldest go; a full disk is no reason to stop."""
    shapes = stored.template.state_shapes
    header = {
        "obs": trees.describe_shapes(shapes.obs),
        "metrics": trees.describe_shapes(shapes.metrics),
        "rest": trees.describe_shapes(list(shapes.rest)),
        "action": stored.template.action._asdict(),
        "episode_length": stored.template.episode_length,
        "carried_leaves": list(stored.template.carried_leaves),
        "agents": stored.template.agents,
        "tokens": list(stored.template.tokens),
        "key_leaves": list(stored.template.key_leaves),
        "curriculum": _numbers(stored.template.curriculum),
        "last_curriculum": _numbers(stored.template.last_curriculum),
    }
    text = json.dumps(header)
    arrays: dict[str, Any] = {
        name: np.frombuffer(program, np.uint8) for name, program in stored.programs.items()
    }
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir() and not path.is_symlink():  # nothing of ours, and a file cannot replace it
            shutil.rmtree(path)
        with atomic_io.replacing(path) as file:
            np.savez(file, header=text, digest=_digest(text, stored.programs), **arrays)
        files = sorted(path.parent.glob("*.npz"), key=lambda p: p.lstat().st_mtime)
        for old in files[:-MAX_FILES]:
            with contextlib.suppress(OSError):
                old.unlink(missing_ok=True)


def _digest(header: str, programs: dict[str, bytes]) -> str:
    """Return a digest of all contents: junk must not pass for programs."""
    digest = hashlib.blake2b(header.encode(), digest_size=16)
    for name in sorted(programs):
        digest.update(name.encode() + b"\0" + len(programs[name]).to_bytes(8) + programs[name])
    return digest.hexdigest()


def _numbers(curriculum: dict[str, np.ndarray] | tuple[()]) -> dict[str, list]:
    """Write a few arrays with names as JSON; cached environments have no others."""
    arrays = {name: np.asarray(array) for name, array in dict(curriculum).items()}
    return {name: [str(array.dtype), array.tolist()] for name, array in arrays.items()}


def _arrays(numbers: dict[str, list]) -> dict[str, np.ndarray] | tuple[()]:
    arrays = {name: np.asarray(values, dtype) for name, (dtype, values) in numbers.items()}
    return arrays or ()
