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
ARM = ("pick_place",)  # an arm on a table
# Kinds of environments, in a setting's `only_if`; one of the user's own counts as any kind.
ANY_PLAYGROUND_TASK = "playground:NAME"
ANY_GYMNASIUM_TASK = "gym:ID"
ANY_BRAX_TASK = "NAME of Brax"
OWN_RANDOMIZER = "playground"  # --task.randomize: the one that such a task brings along
# Tasks of Playground 0.2, by its three suites.
DM_CONTROL = (
    "AcrobotSwingup",
    "AcrobotSwingupSparse",
    "BallInCup",
    "CartpoleBalance",
    "CartpoleBalanceSparse",
    "CartpoleSwingup",
    "CartpoleSwingupSparse",
    "CheetahRun",
    "FingerSpin",
    "FingerTurnEasy",
    "FingerTurnHard",
    "FishSwim",
    "HopperHop",
    "HopperStand",
    "HumanoidRun",
    "HumanoidStand",
    "HumanoidWalk",
    "PendulumSwingup",
    "PointMass",
    "ReacherEasy",
    "ReacherHard",
    "SwimmerSwimmer6",
    "WalkerRun",
    "WalkerStand",
    "WalkerWalk",
)
LOCOMOTION = (
    "ApolloJoystickFlatTerrain",
    "BarkourJoystick",
    "BerkeleyHumanoidJoystickFlatTerrain",
    "BerkeleyHumanoidJoystickRoughTerrain",
    "G1JoystickFlatTerrain",
    "G1JoystickRoughTerrain",
    "Go1Footstand",
    "Go1Getup",
    "Go1Handstand",
    "Go1JoystickFlatTerrain",
    "Go1JoystickRoughTerrain",
    "H1InplaceGaitTracking",
    "H1JoystickGaitTracking",
    "Op3Joystick",
    "SpotFlatTerrainJoystick",
    "SpotGetup",
    "SpotJoystickGaitTracking",
    "T1JoystickFlatTerrain",
    "T1JoystickRoughTerrain",
)
MANIPULATION = (
    "AeroCubeRotateZAxis",
    "AlohaHandOver",
    "AlohaSinglePegInsertion",
    "LeapCubeReorient",
    "LeapCubeRotateZAxis",
    "PandaOpenCabinet",
    "PandaPickCube",
    "PandaPickCubeCartesian",
    "PandaPickCubeOrientation",
    "PandaRobotiqPushCube",
)
CLASSIC = ("arena", "cartpole", "catch", "delayed_match", "pendulum", "recall")
DISCRETE = ("arena", "cartpole", "catch", "delayed_match", "recall")  # those with such actions


def exists(name: str) -> bool:
    """Tell whether `name` can be one of ours, Brax's, Gymnasium's, Playground's or a user's own."""
    own = name in (*BRAX, *CLASSIC, *MOTION, *ARM, OFFLINE) or name.startswith("probe/")
    return own or is_gymnasium(name) or is_playground(name) or is_custom(name)


def solves_in_loops(name: str, backend: str | None) -> bool:
    """Tell whether a physics step contains the loop of an iterative solver, as MuJoCo's does."""
    return name in (*MOTION, *ARM) or backend == "mjx" or is_playground(name)


def compile_time(name: str, backend: str | None) -> str:
    """Return how long a program takes to compile where none is cached, in words."""
    if name in CLASSIC or is_gymnasium(name):
        seconds = "about 10 s"
    elif solves_in_loops(name, backend):
        seconds = "one to five minutes"
    else:
        seconds = "up to a few minutes"
    return f"for the first time: {seconds} on two CPU cores"


def imports_code(name: str) -> bool:
    """Tell whether building `name` imports a module that it names itself."""
    return is_custom(name) or (is_gymnasium(name) and ":" in name.removeprefix("gym:"))


def is_gymnasium(name: str) -> bool:
    """Tell whether `name` is a Gymnasium environment, gym:<id>, which runs on the CPU."""
    return name.startswith("gym:") and len(name) > len("gym:")


def is_playground(name: str) -> bool:
    """Tell whether `name` is a task of MuJoCo Playground, playground:<name>."""
    return name.startswith("playground:") and len(name) > len("playground:")


def reads_assets(name: str) -> bool:
    """Tell whether `name` is a task of Playground with a robot of mujoco_menagerie."""
    return is_playground(name) and name.partition(":")[2] not in DM_CONTROL


def matches(name: str, choice: str) -> bool:
    """Tell whether an environment is the one that `choice` names, or one of a kind it names."""
    kinds = {
        ANY_PLAYGROUND_TASK: is_playground(name),
        ANY_GYMNASIUM_TASK: is_gymnasium(name),
        ANY_BRAX_TASK: name in BRAX,
    }
    return kinds.get(choice, name == choice)


def is_custom(name: str) -> bool:
    """Tell whether `name` points to a user's own environment, module:Class."""
    module, _, attribute = name.partition(":")
    return (
        module not in ("gym", "playground")
        and all(part.isidentifier() for part in module.split("."))
        and attribute.isidentifier()
    )
