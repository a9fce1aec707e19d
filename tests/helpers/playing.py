"""Calls of single environments in tests."""

from jaxrl.physics.precision import physics


def in_physics(function):
    """Wrap a function to run under `physics()`, as VectorEnv calls environments."""

    def call(*arguments):
        with physics():
            return function(*arguments)

    return call
