"""The host loop: the only package with side effects on a run.

Reading order: `fit` (build, start or resume), `loop` (the cycles), `cycle` (what happens between
two of them), `run` (its members and when something is due), `finalize` (how it ends).
"""
