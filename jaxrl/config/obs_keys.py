"""Keys of dict observations that have a meaning of their own; plain strings, without JAX."""

PRIVILEGED = "privileged_state"  # for the critic alone, by the convention of MuJoCo Playground
AMP = "amp"  # motion of the last frames: for the discriminator, not for actor or critic
ACTION_MASK = "action_mask"  # which discrete actions are valid, by the convention of PettingZoo
