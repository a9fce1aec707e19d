"""What tests of single environments share."""

from jaxrl.envs.env_state import physics


def in_physics(function):
    """Call a function as the vectorising layer calls an environment: by physics' own rules."""

    def call(*given):
        with physics():
            return function(*given)

    return call
