"""Checks of what motion clips and the judging of style need."""

from pathlib import Path

from jaxrl.config import AMPConfig, MotionConfig, TrainConfig, env_names


def motion_problems(config: TrainConfig) -> list[str]:
    """Return what cannot be of the settings for motion, each with its fix."""
    problems = _style_problems(config)
    if config.env in env_names.MOTION:
        problems += _clip_problems(config.motion) + _number_problems(config.motion)
    if config.algo != "ppo" and config.amp.weight:
        problems.append(f"--amp.weight is for --algo ppo, not {config.algo}.")
    return problems


def _clip_problems(motion: MotionConfig) -> list[str]:
    where = f" {env_names.WHERE_CLIPS_ARE.rstrip()}"
    given = {"--motion.clips": (motion.clips, where), "--motion.model": (motion.model, "")}
    return [
        f"{flag} '{path}': no such file or folder.{advice}"
        for flag, (path, advice) in given.items()
        if path is not None and not Path(path).exists()
    ]


def _number_problems(motion: MotionConfig) -> list[str]:
    low, high = motion.speeds
    rules = {
        "loop-seconds must not be negative": motion.loop_seconds >= 0,
        "substeps must be at least 1": motion.substeps >= 1,
        "amp-frames must be at least 1": motion.amp_frames >= 1,
        "hybrid-share must lie between 0 and 1": 0 <= motion.hybrid_share <= 1,
        "action-scale must be greater than 0": motion.action_scale > 0,
        "distance must be greater than 0": motion.distance > 0,
        "speed-scale must be greater than 0": motion.speed_scale > 0,
        "power-coef must not be negative": motion.power_coef >= 0,
        "weights must not be negative": min(motion.weights) >= 0,
        "scales must not be negative": min(motion.scales) >= 0,
        "future needs one or more frames of at least 1": min(motion.future, default=0) >= 1,
        "speeds must be two numbers, the lower one first": low <= high,
    }
    return [f"--motion.{text}." for text, holds in rules.items() if not holds]


def _style_problems(config: TrainConfig) -> list[str]:
    amp: AMPConfig = config.amp
    rules = {
        "weight must not be negative": amp.weight >= 0,
        "task-weight must not be negative": amp.task_weight >= 0,
        "scale must be greater than 0": amp.scale > 0,
        "gradient-penalty must not be negative": amp.gradient_penalty >= 0,
        "logit-reg must not be negative": amp.logit_reg >= 0,
        "weight-decay must not be negative": amp.weight_decay >= 0,
        "learning-rate must not be negative": amp.learning_rate >= 0,
        "hidden needs one or more widths of at least 1": min(amp.hidden, default=0) >= 1,
        "batch-size must be at least 1": amp.batch_size >= 1,
        "updates must be at least 1": amp.updates >= 1,
        "replay must be at least 1": amp.replay >= 1,
    }
    return [f"--amp.{text}." for text, holds in rules.items() if not holds]
