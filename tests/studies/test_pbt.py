"""Population-based training: who copies whom, with which settings, and what is written."""

import signal
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from jaxrl.errors import UserError
from jaxrl.loggers import metrics_log
from jaxrl.studies import pbt, pbt_report, search
from jaxrl.studies.study import Between, Study

pytestmark = pytest.mark.usefixtures("shared_programs", "no_plots")

RATE = {"ppo.learning_rate": Between(1e-6, 1.0, log=True)}
STUDY = """
from jaxrl.studies import Between, Study

STUDY = Study(
    "cartpole",
    {},
    search={
        "ppo.learning_rate": Between(1e-4, 1e-2, log=True),
        "ppo.lam": Between(0.8, 1.0),
        "ppo.bootstrap_truncated": (True, False),
    },
)
"""


def test_worst_quarter_copies_the_best_quarter():
    scores = np.array([5.0, 1.0, 7.0, np.nan, 6.0, 3.0, 8.0, 4.0])
    values = {"ppo.learning_rate": np.arange(1.0, 9.0) / 100}
    made = pbt.plan(scores, values, RATE, np.random.default_rng(0))
    stay = [0, 2, 4, 5, 6, 7]
    assert made.parents[stay].tolist() == stay
    assert set(made.parents[[1, 3]]) <= {2, 6}
    rates = made.values["ppo.learning_rate"]
    assert (rates[stay] == values["ppo.learning_rate"][stay]).all()
    assert (values["ppo.learning_rate"] == np.arange(1.0, 9.0) / 100).all()  # not changed in place


def test_perturbed_settings_stay_near_or_are_sampled_again():
    rng = np.random.default_rng(0)
    made = np.array([pbt.perturbed(0.5, Between(0.45, 1.0), rng) for _ in range(400)])
    near = np.isclose(made, 0.45) | np.isclose(made, 0.6)  # 0.4 lies below the range
    assert 0.65 < near.mean() < 0.85
    assert (made >= 0.45).all() and (made <= 1.0).all() and np.unique(made).size > 50
    assert {pbt.perturbed(1.0, (1.0, 0.0), rng) for _ in range(50)} == {0.0, 1.0}


def test_settings_move_to_where_scores_are_highest():
    """A population far from the optimum finds it; scores depend on the setting alone."""
    rng = np.random.default_rng(0)
    values = {"ppo.learning_rate": np.full(16, 1e-6)}
    for _ in range(60):
        scores = -np.abs(np.log(values["ppo.learning_rate"] / 0.01))
        values = pbt.plan(scores, values, RATE, rng).values
    assert np.abs(np.log(np.median(values["ppo.learning_rate"]) / 0.01)) < 0.3


class Learner(SimpleNamespace):
    def replace(self, **changes):
        return Learner(**{**vars(self), **changes})


jax.tree_util.register_pytree_node(
    Learner,
    lambda x: (list(vars(x).values()), tuple(vars(x))),
    lambda names, leaves: Learner(**dict(zip(names, leaves, strict=True))),
)


def test_copies_have_the_weights_of_their_parents_and_their_own_settings():
    rates = jax.numpy.array([0.1, 0.2, 0.4])
    learner = Learner(
        params=jax.numpy.arange(6.0).reshape(3, 2),
        hparams={"learning_rate": rates, "lam": jax.numpy.ones(3)},
        learning_rate=rates / 2,  # a schedule has halved it
    )
    state = Learner(learner=learner, curriculum=(), collector=jax.numpy.arange(3))
    plan = pbt.Plan(np.array([2, 1, 2]), {"ppo.learning_rate": np.array([0.8, 0.2, 0.4])})
    new = pbt.apply(state, plan)  # type: ignore[arg-type]
    assert new.learner.params.tolist() == [[4, 5], [2, 3], [4, 5]]
    assert np.allclose(new.learner.hparams["learning_rate"], [0.8, 0.2, 0.4])
    assert np.allclose(new.learner.learning_rate, [0.4, 0.1, 0.2])
    assert new.learner.hparams["lam"].tolist() == [1, 1, 1]
    assert new.collector.tolist() == [0, 1, 2]


def test_lineage_follows_parents():
    parents = np.array([[0, 0, 2], [0, 1, 1], [0, 1, 2]])
    history = pbt_report.History([], np.arange(3), np.zeros((3, 3)), parents, {})
    assert pbt_report.lineage(history, 2) == [0, 1, 2]
    assert pbt_report.lineage(history, 0) == [0, 0, 0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The output folder of a very small population."""
    out = tmp_path_factory.mktemp("pbt")
    (out / "mine.py").write_text(STUDY)
    assert search.main([str(out / "mine.py"), "--smoke", "--pbt", "4", "--out", str(out)]) == 0
    return out


def rows(out):
    (run,) = (out / "runs").iterdir()
    found = {}
    for path in sorted(run.glob("seed-*/metrics.jsonl")):
        for row in metrics_log.read(path).rows:
            found[path.parent.name, row["step"]] = {
                name: value for name, value in row.items() if not name.startswith("time/")
            }
    return found


def test_settings_of_every_member_are_logged_and_reported(folder):
    logged = rows(folder)
    first, last = min(step for _, step in logged), max(step for _, step in logged)
    rates = {logged[f"seed-{i}", first]["pbt/learning_rate"] for i in range(4)}
    assert len(rates) == 4 and all(1e-4 <= rate <= 1e-2 for rate in rates)
    parents = [logged[f"seed-{i}", first]["pbt/parent"] for i in range(4)]
    assert sorted(np.array(parents) != np.arange(4)) == [False, False, False, True]
    (copied,) = (i for i in range(4) if parents[i] != i)
    before = logged[f"seed-{int(parents[copied])}", first]["pbt/learning_rate"]
    assert logged[f"seed-{copied}", first]["pbt/learning_rate"] != before
    assert [logged[f"seed-{i}", last]["pbt/parent"] for i in range(4)] == [0, 1, 2, 3]
    # PPO trained with the rate that is logged.
    assert logged["seed-1", first]["train/learning_rate"] == pytest.approx(
        logged["seed-1", first]["pbt/learning_rate"], rel=0.6
    )
    text = (folder / "pbt.md").read_text()
    assert "4 members of the preset `cartpole`" in text and "not results" in text
    assert (folder / "pbt.png").read_bytes().startswith(b"\x89PNG")


def test_interrupted_population_continues_exactly(folder, tmp_path, interruption):
    stop, evaluated = interruption
    command = [str(folder / "mine.py"), "--smoke", "--pbt", "4", "--out", str(tmp_path)]
    assert search.main(command) == 128 + signal.SIGTERM
    stop.signal = None
    assert search.main(command) == 0
    assert evaluated == [1, 2]
    assert rows(tmp_path) == rows(folder)


def refused(capsys, *words):
    assert search.main([*words]) == 2
    return capsys.readouterr().err


def test_unusable_requests_are_refused(folder, tmp_path, capsys):
    mine = str(folder / "mine.py")
    assert "--pbt needs at least 2 members, not 1" in refused(capsys, mine, "--pbt", "1")
    assert "--trials belongs to trials" in refused(capsys, mine, "--pbt", "4", "--trials", "9")
    text = refused(capsys, "cartpole_basics", "--pbt", "4", "--out", str(tmp_path))
    assert "'ppo.update_epochs' shapes the program" in text
    for settings in ({}, {"ppo.bound_coef": 0.1}):
        low = 1e-3 if not settings else 0.0
        chosen = Study(
            "cartpole", {}, settings=settings, search={"ppo.bound_coef": Between(low, 1.0)}
        )
        with pytest.raises(UserError, match="Search it above 0 only"):
            pbt.population(chosen, 4)
    usable = Study(
        "cartpole",
        {},
        settings={"ppo.bound_coef": 0.1},
        search={"ppo.bound_coef": Between(0.01, 0.5)},
    )
    assert [member.seed for member in pbt.population(usable, 3)] == [0, 1, 2]
    silent = Study("cartpole", {}, settings={"eval.num_envs": 0}, search=RATE)
    with pytest.raises(UserError, match=r"set eval.num_envs > 0"):
        pbt.population(silent, 4)
