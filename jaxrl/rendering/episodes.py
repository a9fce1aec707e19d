"""Record episodes of a policy with all that is needed to draw them."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.config import TrainConfig
from jaxrl.envs import env_adapter
from jaxrl.envs import factory as environments
from jaxrl.envs.env_state import LazyEnv
from jaxrl.envs.gymnasium.env import GymnasiumEnv
from jaxrl.envs.vector_env import EnvState, VectorEnv
from jaxrl.errors import UserError, nearest
from jaxrl.evaluation import episodes as evaluation
from jaxrl.evaluation.episodes import Episodes
from jaxrl.physics.precision import physics
from jaxrl.policies import load
from jaxrl.policies.load import LoadedPolicy
from jaxrl.types import PyTree
from jaxrl.utils.formatting import short
from jaxrl.utils.progress import Stage, silent

SEARCHED = 100  # episodes played to find failures


class RecordedEpisode(NamedTuple):
    """One episode; states are recorded before the first step and after each."""

    number: int
    name: str | None  # of the motion clip
    success: bool | None  # None if the environment does not report success
    rewards: np.ndarray  # [T]
    states: PyTree  # [T + 1, ...], as `env_adapter.render_state` returns them

    @property
    def title(self) -> str:
        """Number, clip, return and outcome in one line."""
        outcome = {True: ", success", False: ", failed", None: ""}[self.success]
        name = f", {self.name}" if self.name else ""
        return f"episode {self.number}{name}: return {short(float(self.rewards.sum()))}{outcome}"


def build_env(config: TrainConfig) -> VectorEnv:
    """Build the environment of a run; raise a UserError if it cannot be rendered."""
    env = environments.build(config)
    if isinstance(env, GymnasiumEnv):
        raise UserError(
            f"The environment '{config.env}' is Gymnasium's, which draws itself: play the policy "
            "of jaxrl.load_policy in gymnasium.make(..., render_mode='human')."
        )
    return env


def record_episodes(
    policy: LoadedPolicy,
    config: TrainConfig,
    env: VectorEnv,
    *,
    number: int,
    seed: int = 0,
    deterministic: bool = True,
    failures: bool = False,
    clip: str | None = None,
    stage: Stage = silent,
) -> list[RecordedEpisode]:
    """Play and record episodes.

    An environment of motion clips plays them in order, each from its beginning.

    Args:
      policy: the policy to play.
      config: settings of the run.
      env: its environment.
      number: how many episodes to return.
      seed: for sampling start states and actions.
      deterministic: take the most likely actions.
      failures: play `SEARCHED` episodes, or all clips, and return those that failed.
      clip: name of the only motion clip to play.
      stage: reports what begins.
    """
    trials = _trials(env, None if failures else number, clip)
    names = _clip_names(env, trials)
    if trials is not None and (chosen := env.hooks.with_trials):
        # One program with the clips that are drawn, of a library that is larger than the device.
        chosen = LazyEnv(partial(chosen, trials))
        env, trials = replace(env, env=chosen, cached_template=None), tuple(range(len(trials)))
    count = max(number, SEARCHED) if failures else number
    copies = environments.for_rendering(env, count, trials)
    play = load.player(
        policy,
        config,
        copies,
        seed=seed,
        deterministic=deterministic,
        record=_recorder(copies),
        record_start=True,
        stage=stage,
    )
    episodes = _split(copies, play(policy.params), names)
    return _failed(episodes, number) if failures else episodes


def _trials(env: VectorEnv, number: int | None, clip: str | None) -> tuple[int, ...] | None:
    """Return the numbers of the trials to play; None for an environment without trials."""
    count = env.template.trials
    if clip is not None:
        if not count:
            raise UserError("--clip: this run follows no motion clips.")
        names = env.hooks.trial_names
        if clip not in names:
            raise UserError(
                f"--clip: there is no clip '{clip}'.{nearest(clip, names)} "
                f"There are: {', '.join(names)}."
            )
        return (names.index(clip),)
    return tuple(range(count if number is None else min(number, count))) if count else None


def _clip_names(env: VectorEnv, trials: tuple[int, ...] | None) -> list[str] | None:
    return None if trials is None else [env.hooks.trial_names[i] for i in trials]


def _recorder(env: VectorEnv) -> Callable[[EnvState], PyTree]:
    """Return a function of N states: what is drawn, the reward, and the record of a trial."""
    inner = env.env.inner

    def record(state: EnvState) -> PyTree:
        brax_state = env.brax_state(state.packed)
        with physics():
            drawn = jax.vmap(lambda one: env_adapter.render_state(inner, one))(brax_state)
        reward = jnp.mean(brax_state.reward.reshape(env.num_envs, -1), axis=1)
        recorded = {"states": drawn, "reward": reward}
        return recorded | env.record(state) if env.trials else recorded

    return record


def _split(env: VectorEnv, played: Episodes, clips: list[str] | None) -> list[RecordedEpisode]:
    """Split a batch of episodes into single ones."""
    trace, lengths = played.trace, np.asarray(played.lengths)
    steps = -(-lengths // env.action_repeat)
    success = None if played.successes is None else np.asarray(played.successes) > 0.5
    if (by_trial := evaluation.trial_success(played, env)) is not None:
        success = by_trial

    def episode(i: int) -> RecordedEpisode:
        states = jax.tree.map(
            lambda first, later: np.concatenate([first[None, i], later[: steps[i], i]]),
            played.start["states"],
            trace["states"],
        )
        return RecordedEpisode(
            number=i + 1,
            name=None if clips is None else clips[i],
            success=None if success is None else bool(success[i]),
            rewards=np.asarray(trace["reward"])[: steps[i], i],
            states=states,
        )

    return [episode(i) for i in range(len(lengths))]


def _failed(episodes: list[RecordedEpisode], number: int) -> list[RecordedEpisode]:
    """Return the episodes that failed; without a success flag, those of the lowest return."""
    if episodes[0].success is None:
        return sorted(episodes, key=lambda episode: float(episode.rewards.sum()))[:number]
    failed = [episode for episode in episodes if not episode.success]
    if not failed:
        raise UserError(f"--failures: no episode of {len(episodes)} failed. Try another --seed.")
    return failed[:number]
