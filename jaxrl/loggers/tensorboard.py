"""TensorBoard's event files, written synchronously.

tensorboardX's writer passes events to a thread through a short queue. The thread ends when a disk
is full, or when the clock is set back by weeks, and later writes then block for ever.
"""

import contextlib
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jaxrl.errors import first_line

_PREFIX = "events.out.tfevents."


class EventFile:
    """One event file in a folder; when it cannot be written, it warns once and stops.

    Args:
      purge_step: TensorBoard drops the points of earlier files from this step on.
    """

    def __init__(self, folder: Path, suffix: str = "", purge_step: int | None = None) -> None:
        with _no_pytorch():
            from tensorboardX import record_writer
            from tensorboardX.proto import event_pb2
        protocol: Any = event_pb2  # its classes are made at run time
        self._new_event, self._folder, self._records = protocol.Event, folder, None
        with self._warning():
            folder.mkdir(parents=True, exist_ok=True)
            self._records = record_writer.RecordWriter(str(folder / _new_name(folder, suffix)))
        self._write(file_version="brain.Event:2")
        if purge_step is not None:
            log = protocol.SessionLog(status=protocol.SessionLog.START)
            self._write(step=purge_step, session_log=log)

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Write the values of one step and flush them to disk."""
        from tensorboardX.summary import scalar

        parts = [scalar(name, value) for name, value in values.items()]
        if not parts:
            return
        merged, *others = parts
        for part in others:
            merged.MergeFrom(part)
        self.summary(merged, step)

    def summary(self, summary: Any, step: int = 0) -> None:
        """Write one of TensorBoard's summaries."""
        self._write(step=step, summary=summary)
        with self._warning():
            if self._records is not None:
                self._records.flush()

    def close(self) -> None:
        """Close the file."""
        with self._warning():
            if self._records is not None:
                self._records.close()
        self._records = None

    def _write(self, **fields: Any) -> None:
        event = self._new_event(wall_time=time.time(), **fields)
        with self._warning():
            if self._records is not None:
                self._records.write(event.SerializeToString())

    @contextlib.contextmanager
    def _warning(self) -> Iterator[None]:
        """Turn a disk error into a warning: metrics.jsonl has the same values."""
        try:
            yield
        except OSError as error:
            reason = error.strerror or first_line(error)
            text = f"TensorBoard files in {self._folder} are no longer written: {reason}"
            records, self._records = self._records, None
            with contextlib.suppress(OSError):  # stderr may be a file on the same disk
                print(f"warning: {text}; metrics.jsonl has the same values.", file=sys.stderr)
            with contextlib.suppress(OSError):  # its buffer cannot be written either
                if records is not None:
                    records.close()


def write_gif(folder: Path, step: int, file: Path) -> None:
    """Write an animated GIF as an image, which TensorBoard shows moving."""
    from PIL import Image

    with contextlib.closing(EventFile(folder)) as events:
        from tensorboardX.proto import summary_pb2

        protocol: Any = summary_pb2
        with Image.open(file) as image:
            width, height = image.size
        encoded = protocol.Summary.Image(
            width=width, height=height, colorspace=3, encoded_image_string=file.read_bytes()
        )
        value = protocol.Summary.Value(tag="eval/video", image=encoded)
        events.summary(protocol.Summary(value=[value]), step)


def _new_name(folder: Path, suffix: str) -> str:
    """Return a name that sorts after all others, even if the clock was set back.

    TensorBoard reads the files of a folder in the order of their names.
    """
    stamps = [path.name.removeprefix(_PREFIX)[:10] for path in folder.glob(f"{_PREFIX}*")]
    last = max((int(stamp) for stamp in stamps if stamp.isdecimal()), default=0)
    stamp = max(int(time.time()), last + 1)
    return f"{_PREFIX}{stamp:010d}.{socket.gethostname()}{suffix}"


@contextlib.contextmanager
def _no_pytorch() -> Iterator[None]:
    """Hide PyTorch from tensorboardX, which would import it for two seconds, for annotations."""
    if "torch" in sys.modules:
        yield
        return
    sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["torch"]
