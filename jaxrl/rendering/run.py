"""Render episodes of a run's policy into one file."""

from pathlib import Path

from jaxrl.config import TrainConfig
from jaxrl.policies import load
from jaxrl.programs import memory_estimate
from jaxrl.rendering import episodes, images, video
from jaxrl.utils import compilation_cache
from jaxrl.utils.formatting import plural
from jaxrl.utils.progress import Stage, silent


def render_run(
    run: Path,
    config: TrainConfig,
    out: Path,
    *,
    policy: str = "best",
    number: int = 1,
    seed: int = 0,
    deterministic: bool | None = None,
    failures: bool = False,
    clip: str | None = None,
    fps: float | None = None,
    seconds: float | None = None,
    gl: bool = False,
    steer: bool = False,
    stage: Stage = silent,
) -> None:
    """Play `number` episodes with the policy of a run, and write them to `out`.

    Args:
      run: the run folder.
      config: its settings.
      out: a file that ends in one of `rendering.SUFFIXES`.
      policy: best, final, or the step of a checkpoint.
      number: how many episodes.
      seed: seed of the episodes.
      deterministic: take the most likely actions; as the run's evaluation when None.
      failures: choose episodes that failed, or those of the lowest return.
      clip: the name of the motion clip to show.
      fps: frames per second; chosen by the environment when None.
      seconds: cut each episode after this time.
      gl: let MuJoCo draw the frames.
      steer: let the arrow keys steer the robot on the page.
      stage: reports what begins: loading, compiling, playing, drawing.
    """
    images.check_video_support(out)
    compilation_cache.enable()
    with stage(f"loading the {policy} policy and {config.env}"):
        loaded = load.load_policy(load.find(run, policy), network=config.network.module)
        env = episodes.build_env(config)
        memory_estimate.refuse_episodes(env, number)
        if steer:
            video.refuse_steering(env)
    chosen = config.eval.deterministic if deterministic is None else deterministic
    recorded = episodes.record_episodes(
        loaded,
        config,
        env,
        number=number,
        seed=seed,
        deterministic=chosen,
        failures=failures,
        clip=clip,
        stage=stage,
    )
    title = f"{config.env}, {policy} policy"
    with stage(f"drawing {out}"):
        video.write(video.VideoSpec(env, title, fps, seconds, gl, steer), recorded, out)
    for episode in recorded:
        print(f"{episode.title}, {plural(len(episode.rewards), 'step')}", flush=True)
