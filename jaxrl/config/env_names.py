"""The names of the built-in environments: plain strings, so that `--help` stays instant."""

BRAX = (
    "ant",
    "fast",
    "halfcheetah",
    "hopper",
    "humanoid",
    "humanoidstandup",
    "inverted_double_pendulum",
    "inverted_pendulum",
    "pusher",
    "reacher",
    "swimmer",
    "walker2d",
)
AGENTS = {"arena": 4}  # those with more than one in an environment, and how many by default
MOST_AGENTS = 64  # that fit into the arena beside walls, mines and altars
BACKENDS = ("generalized", "mjx", "positional", "spring")
OFFLINE = "offline"  # no environment: recorded episodes
MOTION = ("imitation", "heading")  # these follow motion clips
NO_CLIP = "No clip given: using a generated one.\n"
CLIP_SOURCES = """\
Captured clips are available from
  - the repository xbpeng/DeepMimic, folder data/motions (humanoid3d_*.txt);
  - the package pybullet from PyPI, which carries fifteen of them in
    pybullet_data/data/motions.
"""
PLANNING_HINT = """\
Captured motion breaks laws of physics in places, where no policy can follow it. To plan feasible
motion from these clips and train on it:
  python -m jaxrl.clips.plan {clips} PLANNED
  python -m jaxrl.train imitate --motion.clips PLANNED
"""
ALGORITHMS = ("ppo", "sac", "td3", "dqn", "iql", "bc")
OFF_POLICY = ALGORITHMS[1:]
DATA_ONLY = ("iql", "bc")  # these learn from recorded episodes
ARM = ("pick_place",)  # an arm on a table
CLASSIC = ("arena", "cartpole", "catch", "pendulum", "recall")


def exists(name: str) -> bool:
    """Tell whether `name` can be built: ours, Brax's, Gymnasium's, or a user's module:Class."""
    own = name in (*BRAX, *CLASSIC, *MOTION, *ARM, OFFLINE) or name.startswith("probe/")
    return own or is_hosted(name) or is_custom(name)


def solves_in_loops(name: str, backend: str | None) -> bool:
    """Tell whether a physics step contains the loop of an iterative solver, as MuJoCo's does."""
    return name in (*MOTION, *ARM) or backend == "mjx"


def imports_code(name: str) -> bool:
    """Tell whether building `name` imports a module that it names itself."""
    return is_custom(name) or (is_hosted(name) and ":" in name.removeprefix("gym:"))


def is_hosted(name: str) -> bool:
    """Tell whether `name` is a Gymnasium environment, gym:<id>, which runs on the CPU."""
    return name.startswith("gym:") and len(name) > len("gym:")


def is_custom(name: str) -> bool:
    """Tell whether `name` points to a user's own environment, module:Class."""
    module, _, attribute = name.partition(":")
    return (
        module != "gym"
        and all(part.isidentifier() for part in module.split("."))
        and attribute.isidentifier()
    )
