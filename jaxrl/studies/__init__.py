"""Studies: variants of a preset over seeds, compared in a report; searches of settings.

    from jaxrl.studies import Study

    STUDY = Study("cartpole", {"lambda 1": {"ppo.lam": 1.0}}, seeds=5)

`jaxrl study my_study.py` runs it, and `jaxrl search my_study.py` searches its settings.
"""

from jaxrl.studies.study import Between, Study, grid

__all__ = ["Between", "Study", "grid"]
