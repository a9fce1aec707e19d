"""Train with stable-baselines3's own PPO on a Gymnasium task; print one JSON line per evaluation.

    python -m benchmarks.sb3_worker cartpole --seed 0

Run by benchmarks.baselines, in a process of its own. Settings are the tuned ones that its users
publish for these tasks (RL Zoo). Evaluations are not counted as training time in steps/s.
"""

# pyright: reportMissingImports=false
import argparse
import json
import time
from typing import Any

TASKS: dict[str, dict[str, Any]] = {
    "cartpole": {
        "env": "CartPole-v1",
        "num_envs": 8,
        "steps": 100_000,
        "n_steps": 32,
        "batch_size": 256,
        "gae_lambda": 0.8,
        "gamma": 0.98,
        "n_epochs": 20,
        "learning_rate": lambda left: 1e-3 * left,
        "clip_range": lambda left: 0.2 * left,
    },
    "pendulum": {
        "env": "Pendulum-v1",
        "num_envs": 4,
        "steps": 100_000,
        "n_steps": 1024,
        "gae_lambda": 0.95,
        "gamma": 0.9,
        "n_epochs": 10,
        "learning_rate": 1e-3,
        "clip_range": 0.2,
        "use_sde": True,
        "sde_sample_freq": 4,
    },
}


class Stopwatch:
    """Seconds, without the pauses."""

    def __init__(self):
        self.seconds, self._began = 0.0, time.monotonic()

    def pause(self) -> None:
        self.seconds += time.monotonic() - self._began

    def resume(self) -> None:
        self._began = time.monotonic()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--evals", type=int, default=20)
    arguments = parser.parse_args()
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy

    class Report(BaseCallback):
        """Evaluate between rollouts, about `evals` times."""

        def _on_training_start(self) -> None:
            self.clock, self.due = Stopwatch(), every

        def _on_step(self) -> bool:
            return True

        def _on_rollout_start(self) -> None:
            if self.num_timesteps >= self.due:
                self.due += every
                self.evaluate()

        def evaluate(self) -> None:
            self.clock.pause()
            mean, std = evaluate_policy(self.model, eval_env, n_eval_episodes=20)
            rate = self.num_timesteps / self.clock.seconds
            row = {"steps": self.num_timesteps, "return": mean, "std": std, "steps/s": rate}
            print(json.dumps(row, default=float), flush=True)
            self.clock.resume()

    settings = dict(TASKS[arguments.task])
    name, number, steps = (settings.pop(key) for key in ("env", "num_envs", "steps"))
    steps = arguments.steps or steps
    every = steps // arguments.evals
    train_env = make_vec_env(name, number, seed=arguments.seed)
    eval_env = make_vec_env(name, 1, seed=arguments.seed + 1000)
    model = PPO("MlpPolicy", train_env, seed=arguments.seed, device="cpu", **settings)
    report = Report()
    model.learn(steps, callback=report)
    report.evaluate()


if __name__ == "__main__":
    main()
