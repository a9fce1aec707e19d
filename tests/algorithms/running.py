"""Running an algorithm for a few iterations."""

import jax


def steps(algorithm, number, seed=0):
    step = jax.jit(algorithm.train_step)
    state = jax.jit(algorithm.init)(jax.random.key(seed))
    metrics = []
    for _ in range(number):
        state, values = step(state)
        metrics.append({k: float(m.total / m.count) for k, m in values.items() if m.count > 0})
    return state, metrics
