"""Make tracing faster, without changing what is traced; importing this module is enough.

JAX must not be imported before its flags are set.
"""

import functools
import gc
import threading

from jax._src.interpreters import mlir
from tyro import _docstrings

# Tracing makes many objects and few cycles: at its default threshold, garbage collection takes a
# tenth of the time.
gc.set_threshold(50_000)

# Every command line makes tyro tokenise the source of all settings, which does not change.
_make = _docstrings._ClassTokenization.make.__wrapped__  # pyright: ignore[reportFunctionMemberAccess]
_docstrings._ClassTokenization.make = staticmethod(functools.cache(_make))

# JAX makes an MLIR context for every program, which takes ten milliseconds: longer than the rest of
# lowering for the thousands of programs that are a single operation. One per thread is enough.
_make_context, _contexts = mlir.make_ir_context, threading.local()


def _shared_context():
    if not hasattr(_contexts, "context"):
        _contexts.context = _make_context()
    return _contexts.context


mlir.make_ir_context = _shared_context
