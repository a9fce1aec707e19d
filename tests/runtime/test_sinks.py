"""What opening a log brings along, and what not."""

import contextlib
import sys

from jaxrl.runtime import sinks


def test_tensorboard_does_not_bring_pytorch(tmp_path, monkeypatch):
    """Where it is installed, tensorboardX would load it at every start of a run."""
    (tmp_path / "torch.py").write_text("class Tensor: pass")
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "torch"]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("tensorboardX", "tensorboardX.global_writer", "tensorboardX.writer"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with contextlib.ExitStack() as stack:
        sinks.tensorboard(tmp_path / "events", stack, None)(1, {"train/loss": 0.5})
    assert "torch" not in sys.modules and any((tmp_path / "events").iterdir())
