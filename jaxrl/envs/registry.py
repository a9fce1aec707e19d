"""From a name to a (single, unvectorised) Brax environment."""

import contextlib
import importlib
import inspect
import io
import types
import warnings

import jax.numpy as jnp

from jaxrl.config import MotionConfig, PickConfig, env_names
from jaxrl.envs import contact_forces
from jaxrl.errors import UserError, nearest


def _import_brax():
    """Import brax without its notices: unmaintained pipelines, missing warp, old jaxopt."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        from brax import envs, fluid
        from brax.generalized import constraint
    # brax 0.14.2 calls clip by a name that JAX has dropped; only the swimmer's water needs it.
    mended = {"clip": lambda x, a_min: jnp.maximum(x, a_min)}
    fluid.jp = types.SimpleNamespace(**{**vars(jnp), **mended})
    constraint.force = contact_forces.force  # the same forces, sooner
    return envs


def make(name: str, backend: str | None = None, **kwargs):
    """Build the environment called `name`; `backend` None means the environment's own choice."""
    if backend is not None:
        if backend not in env_names.BACKENDS:
            hint = nearest(backend, env_names.BACKENDS)
            raise UserError(f"--backend: unknown backend '{backend}'.{hint} {env_names.BACKENDS}")
        kwargs["backend"] = backend
    if name in env_names.BRAX:
        return _make_brax(name, kwargs)
    if name in env_names.CLASSIC or name.startswith("probe/"):
        if backend is not None:
            raise UserError(f"--backend: '{name}' has no physics backend: use --backend None.")
        return _make_own(name)
    if env_names.is_custom(name):
        return _make_custom(name, kwargs)
    every = (*env_names.BRAX, *env_names.CLASSIC, *env_names.MOTION, *env_names.ARM)
    raise UserError(
        f"--env: unknown environment '{name}'.{nearest(name, every)} Known: {', '.join(every)}, "
        "or your own as module:Class."
    )


def _make_brax(name: str, kwargs: dict):
    envs = _import_brax()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return envs.get_environment(name, **kwargs)
        except Exception as error:  # brax raises many kinds for a backend it lacks
            raise UserError(
                f"--backend: brax cannot build '{name}' on '{kwargs.get('backend')}': {error}"
            ) from error


def _make_own(name: str):
    _import_brax()
    from jaxrl.envs.tasks import arena, catch, classic, probes, recall

    own: dict[str, type] = {
        "arena": arena.Arena,
        "cartpole": classic.CartPole,
        "catch": catch.Catch,
        "pendulum": classic.Pendulum,
        "recall": recall.Recall,
    }
    own |= {f"probe/{probe}": cls for probe, cls in probes.PROBES.items()}
    if name not in own:
        raise UserError(f"--env: unknown environment '{name}'.{nearest(name, own)}")
    return own[name]()


def make_motion(name: str, config: MotionConfig, *, with_amp: bool):
    """Build an environment that is made of motion clips; `with_amp`: it shows how it moves."""
    _import_brax()
    from jaxrl.envs.tasks import heading, imitation, motion_env

    known = {"imitation": imitation.Imitation, "heading": heading.Heading}
    return known[name](*motion_env.parts(config), with_amp=with_amp)


def make_arm(config: PickConfig):
    """Build the arm with its cube and target."""
    _import_brax()
    from jaxrl.envs.tasks.pick_place import env as pick_place

    return pick_place.PickPlace(config)


def _make_custom(name: str, kwargs: dict):
    _import_brax()
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise UserError(
            f"--env: cannot import '{module_name}' ({error}). Run from the folder that holds it, "
            "or put that folder on PYTHONPATH."
        ) from error
    if not hasattr(module, attribute):
        hint = nearest(attribute, vars(module))
        raise UserError(f"--env: module '{module_name}' has no '{attribute}'.{hint}")
    factory = getattr(module, attribute)
    if not callable(factory):
        raise UserError(f"--env: '{name}' is no class or function.")
    accepted = inspect.signature(factory).parameters
    open_ended = any(p.kind is p.VAR_KEYWORD for p in accepted.values())
    if "backend" in kwargs and "backend" not in accepted and not open_ended:
        raise UserError(f"--backend: '{name}' takes no backend; leave the flag out.")
    try:
        env = factory(**kwargs)
    except TypeError as error:
        raise UserError(f"--env: '{name}' cannot be built without arguments: {error}") from error
    missing = [m for m in ("reset", "step", "action_size") if not hasattr(env, m)]
    if missing:
        raise UserError(f"--env: '{name}' is not a Brax environment, it lacks {missing}.")
    return env
