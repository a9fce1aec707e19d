"""The command `jaxrl`: one name for the programs of the package.

jaxrl train ant --num-envs 4096     is     python -m jaxrl.train ant --num-envs 4096
"""

import importlib
import os
import sys

from jaxrl.errors import UserError, exit_status, nearest

# Name: module, and what it does.
COMMANDS = {
    "train": ("jaxrl.train", "train an agent, or resume a run"),
    "launch": ("jaxrl.launch", "train one run on several processes of this machine"),
    "evaluate": ("jaxrl.evaluate", "play episodes with a trained policy: metrics and JSON"),
    "zoo": ("jaxrl.zoo", "list the policies that come with the package, or watch one"),
    "render": ("jaxrl.render", "watch episodes: a page in 3-D, a GIF or a video"),
    "report": ("jaxrl.report", "compare runs on one page"),
    "export": ("jaxrl.export", "write a policy that needs no jaxrl"),
    "record": ("jaxrl.record", "record episodes to learn from"),
    "study": ("jaxrl.studies.run", "train variants of a preset over seeds, and compare them"),
    "search": ("jaxrl.studies.search", "search settings of a preset"),
    "presets": ("jaxrl.presets", "list the presets"),
    "clips-convert": ("jaxrl.clips.convert", "convert motion capture"),
    "clips-inspect": ("jaxrl.clips.inspect", "describe motion capture"),
    "clips-plan": ("jaxrl.clips.plan", "plan feasible motion from clips"),
    "completion": ("jaxrl.completion", "print a script that completes commands in bash or zsh"),
}


def usage() -> str:
    """Return the list of commands."""
    lines = ["usage: jaxrl COMMAND ...    (jaxrl COMMAND --help describes one)", ""]
    return "\n".join([*lines, *(f"  {name:15}{about}" for name, (_, about) in COMMANDS.items())])


def main(arguments: list[str] | None = None) -> int:
    """Run a command; return the exit status."""
    words = sys.argv[1:] if arguments is None else arguments
    # As `python -m` does: modules of your own are found in the current folder.
    if (here := os.getcwd()) not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    return exit_status(lambda: _run(words))


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if words else 2
    if words[0] == "--version":
        print(f"jaxrl {importlib.import_module('jaxrl').__version__}")
        return 0
    if words[0] not in COMMANDS:
        raise UserError(
            f"There is no command '{words[0]}'.{nearest(words[0], COMMANDS)}\n\n{usage()}"
        )
    return importlib.import_module(COMMANDS[words[0]][0]).main(words[1:])


if __name__ == "__main__":
    sys.exit(main())
