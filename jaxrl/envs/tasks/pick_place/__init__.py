"""An arm with a suction cup that brings a cube to a target."""
