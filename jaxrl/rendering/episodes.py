"""Episodes for people to watch: played, picked, and cut down to what is shown of them."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.algorithms import policy as acting
from jaxrl.config import TrainConfig, env_names
from jaxrl.envs import env_adapter
from jaxrl.envs import factory as environments
from jaxrl.envs.env_state import physics
from jaxrl.envs.gymnasium.env import GymnasiumEnv
from jaxrl.envs.vector_env import EnvState, VectorEnv
from jaxrl.errors import UserError, nearest
from jaxrl.evaluation import episodes as evaluation
from jaxrl.policies.load import LoadedPolicy
from jaxrl.types import Array, PyTree
from jaxrl.utils import streams, xla_options

SEARCHED = 100  # episodes among which failures are looked for


class RecordedEpisode(NamedTuple):
    """One episode; states are noted before the first step and after each."""

    number: int
    name: str | None  # of the clip that was followed
    success: bool | None  # None where the environment reports none
    rewards: np.ndarray  # [T]
    shown: PyTree  # [T + 1, ...], as `env_adapter.render_state` says

    @property
    def title(self) -> str:
        """How an episode is listed."""
        outcome = {True: ", success", False: ", failed", None: ""}[self.success]
        name = f", {self.name}" if self.name else ""
        return f"episode {self.number}{name}: return {self.rewards.sum():.2f}{outcome}"


def build(config: TrainConfig) -> VectorEnv:
    """Build the environment of a run, if it can be watched."""
    env = environments.build(config)
    if isinstance(env, GymnasiumEnv):
        raise UserError(
            f"The environment '{config.env}' is Gymnasium's, which draws itself: play the policy "
            "of jaxrl.load_policy in gymnasium.make(..., render_mode='human')."
        )
    return env


def episodes(
    policy: LoadedPolicy,
    config: TrainConfig,
    env: VectorEnv,
    *,
    number: int,
    seed: int = 0,
    deterministic: bool = True,
    failures: bool = False,
    clip: str | None = None,
) -> list[RecordedEpisode]:
    """Play episodes; of `failures`, many, of which those that failed are returned.

    An environment with trials plays them in order, each from its beginning, or only the `clip`.
    """
    trials = _trials(env, None if failures else number, clip)
    many = environments.for_rendering(env, max(number, SEARCHED) if failures else number, trials)
    if jax.tree.map(lambda s: s.shape, env.spec.obs) != jax.tree.map(
        lambda s: s.shape, policy.spec.obs
    ):
        raise UserError("The policy was trained on observations of another shape.")
    first, played = _play(policy, config, many, seed, deterministic)
    found = _parted(many, first, played, _names(env, trials))
    return _failed(found, number) if failures else found


def _trials(env: VectorEnv, number: int | None, clip: str | None) -> tuple[int, ...] | None:
    """Return which trials to play; None for environments without trials."""
    count = env.template.trials
    if clip is not None:
        known = list(env.env.trial_names) if count else []
        if not count:
            raise UserError("--clip: this run follows no motion clips.")
        if clip not in known:
            raise UserError(
                f"--clip: there is no clip '{clip}'.{nearest(clip, known)} "
                f"There are: {', '.join(known)}."
            )
        return (known.index(clip),)
    return tuple(range(count if number is None else min(number, count))) if count else None


def _names(env: VectorEnv, trials: tuple[int, ...] | None) -> list[str] | None:
    return None if trials is None else [env.env.trial_names[i] for i in trials]


def _play(
    policy: LoadedPolicy, config: TrainConfig, env: VectorEnv, seed: int, deterministic: bool
) -> tuple[PyTree, evaluation.Episodes]:
    """Play one episode in every copy; return the first states and what followed."""
    note = _noting(env)
    act = acting.make_policy(policy.networks, deterministic)
    run = evaluation.episodes(env, act, policy.initial_carry(env.rows), record=note)

    def play(params: PyTree, key: Array) -> tuple[PyTree, evaluation.Episodes]:
        # The same start as in `run`, which notes states after each step only.
        start = env.reset(jax.random.split(key)[0], stagger=False)
        return note(start), run(params, key)

    loops = env_names.solves_in_loops(config.env, config.backend)
    compiled = jax.jit(play, compiler_options=xla_options.options(loops=loops))
    return jax.device_get(compiled(policy.params, streams.key(seed, streams.COMMAND)))


def _noting(env: VectorEnv) -> Callable[[EnvState], PyTree]:
    """Return what notes of N states what is shown, earned, and judged by."""
    inner = env.env.inner

    def note(state: EnvState) -> PyTree:
        whole = env.brax_state(state.packed)
        with physics():
            shown = jax.vmap(lambda one: env_adapter.render_state(inner, one))(whole)
        reward = jnp.mean(whole.reward.reshape(env.num_envs, -1), axis=1)
        noted = {"shown": shown, "reward": reward}
        return noted | env.record(state) if env.trials else noted

    return note


def _parted(
    env: VectorEnv, first: PyTree, played: evaluation.Episodes, clips: list[str] | None
) -> list[RecordedEpisode]:
    """Take what was played together apart."""
    trace, lengths = played.trace, np.asarray(played.lengths)
    turns = -(-lengths // env.action_repeat)
    success = None if played.successes is None else np.asarray(played.successes) > 0.5
    if (by_trial := evaluation.trial_success(played, env)) is not None:
        success = by_trial

    def one(i: int) -> RecordedEpisode:
        shown = jax.tree.map(
            lambda a, b: np.concatenate([a[None, i], b[: turns[i], i]]),
            first["shown"],
            trace["shown"],
        )
        return RecordedEpisode(
            number=i + 1,
            name=None if clips is None else clips[i],
            success=None if success is None else bool(success[i]),
            rewards=np.asarray(trace["reward"])[: turns[i], i],
            shown=shown,
        )

    return [one(i) for i in range(len(lengths))]


def _failed(found: list[RecordedEpisode], number: int) -> list[RecordedEpisode]:
    """Return those that did not succeed; where nobody says what success is, the poorest."""
    if found[0].success is None:
        return sorted(found, key=lambda one: float(one.rewards.sum()))[:number]
    failed = [one for one in found if not one.success]
    if not failed:
        raise UserError(
            f"--failures: none of {len(found)} episodes failed. Other starts: another --seed."
        )
    return failed[:number]
