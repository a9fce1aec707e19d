"""Check the action distributions against SciPy, integrals and sample averages."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats
from scipy.integrate import quad

from jaxrl.learning import distributions

KEY = jax.random.key(0)
CONTINUOUS = ["normal", "tanh_normal"]
# mean, standard deviation of a one-dimensional action
SHAPES = [(0.0, 1.0), (0.5, 0.3), (-1.0, 0.7), (2.0, 0.2)]


def _params(mean, std):
    return jnp.concatenate([jnp.float32(mean), jnp.log(jnp.float32(std))], axis=-1)


def _random(rng, shape):
    """Draw means, deviations and raw actions."""
    return rng.normal(size=shape), rng.uniform(0.1, 2.0, size=shape), rng.normal(size=shape)


def test_normal_log_prob_equals_scipy():
    mean, std, raw = _random(np.random.default_rng(0), (50, 3))
    log_prob = distributions.normal(3).log_prob(_params(mean, std), jnp.float32(raw))
    expected = scipy.stats.norm(mean, std).logpdf(raw).sum(-1)
    np.testing.assert_allclose(log_prob, expected, rtol=1e-4, atol=1e-4)


def test_normal_entropy_equals_scipy():
    mean, std, _ = _random(np.random.default_rng(1), (50, 3))
    entropy = distributions.normal(3).entropy(_params(mean, std), KEY)
    expected = scipy.stats.norm(mean, std).entropy().sum(-1)
    np.testing.assert_allclose(entropy, expected, rtol=1e-5, atol=1e-5)


def test_log_det_tanh():
    x = np.linspace(-7, 7, 57)
    expected = np.log1p(-(np.tanh(x) ** 2))
    np.testing.assert_allclose(distributions.log_det_tanh(jnp.float32(x)), expected, atol=1e-4)
    # Far out, 1 − tanh² → 4 exp(−2|x|).
    far = jnp.array([-60.0, -20.0, 20.0, 60.0])
    expected = np.log(4) - 2 * np.abs(far)
    np.testing.assert_allclose(distributions.log_det_tanh(far), expected, rtol=1e-6)


@pytest.mark.parametrize(("mean", "std"), SHAPES)
def test_tanh_normal_density_integrates_to_one(mean, std):
    log_prob = jax.jit(distributions.tanh_normal(1).log_prob)
    params = _params([mean], [std])

    def density(action):
        return float(jnp.exp(log_prob(params, jnp.float32([np.arctanh(action)]))))

    inner = [np.tanh(mean + z * std) for z in (-2, 0, 2)]
    total, _ = quad(density, -1, 1, points=inner, epsabs=1e-4, epsrel=1e-4, limit=200)
    np.testing.assert_allclose(total, 1.0, atol=1e-3)


@pytest.mark.parametrize(("mean", "std"), SHAPES)
def test_tanh_normal_density_is_the_derivative_of_its_cdf(mean, std):
    # P(a < tanh x) = Φ((x − μ) / σ): its slope in a must be the density.
    x = np.linspace(-1.2, 1.2, 9)
    action, h = np.tanh(x), 1e-5
    cdf = [scipy.stats.norm(mean, std).cdf(np.arctanh(action + s * h)) for s in (-1, 1)]
    params = jnp.tile(_params([mean], [std])[None], (9, 1))
    log_prob = distributions.tanh_normal(1).log_prob(params, jnp.float32(x)[:, None])
    np.testing.assert_allclose(np.exp(log_prob), (cdf[1] - cdf[0]) / (2 * h), rtol=1e-3, atol=1e-6)


def test_tanh_normal_dimensions_are_independent():
    mean, std, raw = (jnp.float32(x) for x in _random(np.random.default_rng(2), (20, 3)))
    several, one = distributions.tanh_normal(3), distributions.tanh_normal(1)
    columns = [[x[:, i : i + 1] for x in (mean, std, raw)] for i in range(3)]
    # `raw` serves as actions for log_prob and as noise for entropy.
    for name in ("log_prob", "entropy"):
        joint = getattr(several, name)(_params(mean, std), raw)
        parts = [getattr(one, name)(_params(m, s), x) for m, s, x in columns]
        np.testing.assert_allclose(joint, sum(parts), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", CONTINUOUS)
@pytest.mark.parametrize("raw", [-20.0, 20.0])
def test_log_prob_of_saturated_actions_is_finite(name, raw):
    log_prob = distributions.DISTRIBUTIONS[name](2).log_prob
    params, action = _params([0.0, 1.0], [1.0, 0.5]), jnp.full(2, raw)
    assert np.all(np.abs(jnp.tanh(action)) == 1)  # tanh is saturated in float32
    value, grads = jax.value_and_grad(log_prob, argnums=(0, 1))(params, action)
    stretch = 2 * (np.log(4) - 40) if name == "tanh_normal" else 0.0
    expected = scipy.stats.norm([0, 1], [1, 0.5]).logpdf(raw).sum() - stretch
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    # By the means: (x − μ) / σ²; by the log deviations: z² − 1.
    z = (raw - np.array([0.0, 1.0])) / np.array([1.0, 0.5])
    np.testing.assert_allclose(grads[0], [*(z / [1.0, 0.5]), *(z**2 - 1)], rtol=1e-5)
    assert np.all(np.isfinite(grads[1]))


@pytest.mark.parametrize(("mean", "std"), SHAPES)
def test_tanh_normal_entropy_equals_mean_of_minus_log_prob(mean, std):
    number = 100_000
    dist = distributions.tanh_normal(1)
    params = jnp.broadcast_to(_params([mean], [std]), (number, 2))
    keys = jax.random.split(KEY, 2)
    estimates = dist.entropy(params, jax.random.normal(keys[0], (number, 1)))
    surprise = -dist.log_prob(params, dist.sample(params, keys[1]))
    assert estimates.shape == (number,)
    error = np.hypot(np.std(estimates), np.std(surprise)) / np.sqrt(number)
    assert abs(np.mean(estimates) - np.mean(surprise)) < 5 * error


def test_tanh_normal_entropy_has_the_right_gradient():
    # H(σ) of N(0, σ²) squashed: compare with the slope of a numerical integral.
    def exact(log_std):
        pdf = scipy.stats.norm(0, np.exp(log_std)).pdf
        stretch, _ = quad(lambda x: pdf(x) * np.log1p(-(np.tanh(x) ** 2)), -9, 9)
        return scipy.stats.norm(0, np.exp(log_std)).entropy() + stretch

    def estimate(log_std):
        params = jnp.broadcast_to(jnp.stack([jnp.zeros(()), log_std]), (200_000, 2))
        noise = jax.random.normal(KEY, (200_000, 1))
        return jnp.mean(distributions.tanh_normal(1).entropy(params, noise))

    slope = (exact(0.201) - exact(0.199)) / 0.002
    np.testing.assert_allclose(jax.grad(estimate)(0.2), slope, atol=0.02)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous_samples_have_mean_and_std(name):
    dist = distributions.DISTRIBUTIONS[name](2)
    mean, std = np.array([1.0, -2.0]), np.array([0.5, 3.0])
    params = jnp.broadcast_to(_params(mean, std), (40_000, 4))
    raw = np.asarray(dist.sample(params, KEY))
    for i in range(2):
        test = scipy.stats.kstest(raw[:, i], scipy.stats.norm(mean[i], std[i]).cdf)
        assert test.pvalue > 1e-3
    assert abs(np.corrcoef(raw.T)[0, 1]) < 0.02
    np.testing.assert_allclose(dist.mode(params)[0], mean)
    np.testing.assert_allclose(dist.mean_of_raw(params)[0], mean)
    np.testing.assert_allclose(dist.std(params)[0], std, rtol=1e-5)


def test_to_env_clips_squashes_or_passes_through():
    raw = jnp.array([-30.0, -1.5, -0.5, 0.0, 0.5, 1.5, 30.0])
    clipped = distributions.normal(1).to_env(raw)
    np.testing.assert_array_equal(clipped, [-1, -1, -0.5, 0, 0.5, 1, 1])
    squashed = distributions.tanh_normal(1).to_env(raw)
    np.testing.assert_allclose(squashed, np.tanh(np.float64(raw)), atol=1e-6)
    assert np.all(np.abs(squashed) <= 1)
    choice = jnp.arange(3)
    np.testing.assert_array_equal(distributions.categorical(3).to_env(choice), choice)


def test_categorical_against_softmax():
    logits = np.random.default_rng(3).normal(size=(20, 4)) * 3
    p = scipy.special.softmax(logits, axis=-1)
    dist = distributions.categorical(4)
    for action in range(4):
        log_prob = dist.log_prob(jnp.float32(logits), jnp.full(20, action))
        np.testing.assert_allclose(log_prob, np.log(p[:, action]), rtol=1e-4, atol=1e-4)
    entropy = dist.entropy(jnp.float32(logits), KEY)
    np.testing.assert_allclose(entropy, scipy.stats.entropy(p, axis=-1), atol=1e-5)
    np.testing.assert_array_equal(dist.mode(jnp.float32(logits)), p.argmax(-1))
    # Logits are invariant to a constant shift, even a large one.
    moved = dist.log_prob(jnp.float32(logits) + 100.0, jnp.zeros(20, jnp.int32))
    np.testing.assert_allclose(moved, np.log(p[:, 0]), rtol=1e-3, atol=1e-3)


def test_categorical_sample_frequencies():
    p = np.array([0.1, 0.2, 0.3, 0.4])
    logits = jnp.broadcast_to(jnp.log(jnp.float32(p)) + 5.0, (20_000, 4))
    actions = distributions.categorical(4).sample(logits, KEY)
    counts = np.bincount(actions, minlength=4)
    assert scipy.stats.chisquare(counts, 20_000 * p).pvalue > 1e-3


@pytest.mark.parametrize("name", [*CONTINUOUS, "categorical"])
def test_leading_axes(name):
    dist = distributions.DISTRIBUTIONS[name](3)
    params = jax.random.normal(KEY, (5, 4, dist.param_size))
    raw = dist.sample(params, KEY)
    discrete = name == "categorical"
    shape = (5, 4) if discrete else (5, 4, 3)
    assert dist.param_size == (3 if discrete else 6)
    assert jnp.issubdtype(raw.dtype, jnp.integer) == discrete
    for array in (raw, dist.mode(params), dist.to_env(raw)):
        assert array.shape == shape
    assert dist.std(params).shape == dist.mean_of_raw(params).shape == (5, 4, 3)
    log_prob = dist.log_prob(params, raw)
    noise = jax.random.normal(KEY, (5, 4, dist.noise_size))
    assert log_prob.shape == dist.entropy(params, noise).shape == (5, 4)
    for t in range(5):
        for n in range(4):
            one = dist.log_prob(params[t, n], raw[t, n])
            np.testing.assert_allclose(log_prob[t, n], one, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", [*CONTINUOUS, "categorical"])
def test_samples_depend_on_the_key(name):
    dist = distributions.DISTRIBUTIONS[name](3)
    params = jnp.zeros((64, dist.param_size))
    first, again, other = (dist.sample(params, jax.random.key(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert len(np.unique(first, axis=0)) > 1  # rows do not share their noise


@pytest.mark.parametrize("kind", ["normal", "tanh_normal", "categorical"])
def test_kl_against_samples(kind):
    dist = distributions.DISTRIBUTIONS[kind](3)
    p, q = 0.5 * jax.random.normal(jax.random.key(0), (2, dist.param_size))
    many = jnp.broadcast_to(p, (200_000, dist.param_size))
    raw = dist.sample(many, jax.random.key(1))
    gap = dist.log_prob(many, raw) - dist.log_prob(jnp.broadcast_to(q, many.shape), raw)
    assert float(dist.kl(p, q)) == pytest.approx(float(jnp.mean(gap)), rel=0.02)
    assert float(dist.kl(p, p)) == pytest.approx(0.0, abs=1e-6)


def test_noise_is_added_to_the_squashed_mean():
    dist = distributions.noisy(2)
    params = jnp.broadcast_to(_params([1.0, -0.5], [0.2, 0.05]), (20_000, 4))
    raw = np.asarray(dist.sample(params, KEY))
    np.testing.assert_allclose(raw.mean(axis=0), np.tanh([1.0, -0.5]), atol=5e-3)
    np.testing.assert_allclose(raw.std(axis=0), [0.2, 0.05], rtol=0.03)
    assert abs(np.corrcoef(raw.T)[0, 1]) < 0.03
    np.testing.assert_allclose(dist.mode(params)[0], np.tanh([1.0, -0.5]), rtol=1e-6)
    np.testing.assert_array_equal(
        dist.to_env(jnp.array([-1.2, 0.3, 1.2])), jnp.float32([-1, 0.3, 1])
    )
    assert dist.kind == "noisy" and dist.param_size == 4


def test_greedy_samples_are_epsilon_greedy():
    dist, number = distributions.greedy(3), 30_000
    # The last parameter is epsilon; it is not a value, however high.
    params = jnp.broadcast_to(jnp.array([1.0, 3.0, 2.0, 0.3]), (number, 4))
    actions = dist.sample(params, KEY)
    counts = np.bincount(actions, minlength=3)
    assert len(counts) == 3
    assert scipy.stats.chisquare(counts, number * np.array([0.1, 0.8, 0.1])).pvalue > 1e-3
    high = jnp.array([[1.0, 3.0, 2.0, 9.0], [5.0, 3.0, 2.0, 9.0], [5.0, 3.0, 8.0, 9.0]])
    np.testing.assert_array_equal(dist.mode(high), [1, 0, 2])
    np.testing.assert_array_equal(dist.mode(high[1:]), [0, 2])
    greedy_actions = dist.sample(high.at[:, -1].set(0.0), KEY)
    np.testing.assert_array_equal(greedy_actions, [1, 0, 2])
    assert dist.param_size == 4 and dist.kind == "greedy"
    np.testing.assert_array_equal(dist.log_prob(high, jnp.zeros(3, jnp.int32)), np.zeros(3))


def test_masked_actions_do_not_contribute():
    logits, other = jnp.array([0.0, -jnp.inf, np.log(3.0)]), jnp.array([0.5, 0.2, 0.1])
    dist = distributions.categorical(3)
    p, q = np.array([0.25, 0.75]), scipy.special.softmax(other)[[0, 2]]
    np.testing.assert_allclose(dist.entropy(logits, ()), scipy.stats.entropy(p), rtol=1e-5)
    np.testing.assert_allclose(dist.kl(logits, other), np.sum(p * np.log(p / q)), rtol=1e-5)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_kl_of_normals_matches_formula(name):
    (mean_p, mean_q), (std_p, std_q) = np.random.default_rng(4).uniform(0.3, 2.0, (2, 2, 5, 3))
    found = distributions.DISTRIBUTIONS[name](3).kl(_params(mean_p, std_p), _params(mean_q, std_q))
    terms = np.log(std_q / std_p) + (std_p**2 + (mean_p - mean_q) ** 2) / (2 * std_q**2) - 0.5
    np.testing.assert_allclose(found, terms.sum(axis=-1), rtol=1e-4)


def test_kinds_and_sizes():
    for name in CONTINUOUS:
        dist = distributions.DISTRIBUTIONS[name](3)
        assert dist.kind == name and dist.noise_size == (3 if name == "tanh_normal" else 0)
    assert distributions.categorical(3).kind == "categorical"
    kinds = [("tanh_normal", False, "tanh_normal"), ("tanh_normal", True, "categorical")]
    kinds += [("greedy", True, "greedy"), ("normal", False, "normal")]
    for wanted, discrete, expected in kinds:
        assert distributions.kind_for(wanted, discrete) == expected


def test_categorical_mean_and_std_are_zero():
    dist, logits = distributions.categorical(3), jnp.ones((2, 3))
    for found in (dist.mean_of_raw(logits), dist.std(logits)):
        np.testing.assert_array_equal(found, np.zeros((2, 3)))
