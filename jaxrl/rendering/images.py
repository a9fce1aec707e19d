"""Frames to files: GIF, MP4 or PNG."""

import importlib.util
import shutil
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from jaxrl.errors import UserError, install
from jaxrl.utils import atomic_io

_VIDEO_PACKAGES = ("imageio", "imageio_ffmpeg")
_TEXT_COLOUR = "#3a424b"


def save(frames: Sequence[np.ndarray], path: Path, fps: float) -> None:
    """Write a GIF or MP4 of all frames, or a PNG of the middle one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_io.replacing(path) as file:
        if path.suffix == ".mp4":
            _save_video(frames, file, fps)
        else:
            _save_images(frames, file, path.suffix, fps)


def _save_images(frames: Sequence[np.ndarray], file: BinaryIO, suffix: str, fps: float) -> None:
    from PIL import Image

    if suffix == ".png":
        Image.fromarray(frames[len(frames) // 2]).save(file, "PNG")
        return
    # Few flat colours: a palette keeps the file small and loses nothing.
    first, *more = [Image.fromarray(f).convert("P", palette=Image.Palette.ADAPTIVE) for f in frames]
    pause = round(1000 / fps)
    first.save(file, "GIF", save_all=True, append_images=more, duration=pause, loop=0)


def add_caption(frame: np.ndarray, text: str) -> np.ndarray:
    """Return a frame with a line of text in its upper left corner."""
    from PIL import Image, ImageDraw

    image = Image.fromarray(frame)
    pen = ImageDraw.Draw(image)
    pen.text((10, 8), text, fill=_TEXT_COLOUR, font_size=14, stroke_width=2, stroke_fill="#f4f6f8")
    return np.asarray(image)


def check_video_support(path: Path) -> None:
    """Raise a UserError for a video that cannot be written, before any episode is played."""
    if path.suffix == ".mp4" and not (
        all(map(importlib.util.find_spec, _VIDEO_PACKAGES)) and _has_ffmpeg()
    ):
        raise UserError(
            f"--out '{path}': .mp4 videos need imageio with FFmpeg: {install('video')}. "
            "A .gif or .html needs nothing."
        )


def _has_ffmpeg() -> bool:
    """Return whether there is an FFmpeg: some builds of imageio-ffmpeg come without."""
    import imageio_ffmpeg  # pyright: ignore[reportMissingImports]

    try:
        return bool(imageio_ffmpeg.get_ffmpeg_exe())
    except RuntimeError:
        return False


def _save_video(frames: Sequence[np.ndarray], file: BinaryIO, fps: float) -> None:
    """Write a video: FFmpeg needs a file name, so it writes a temporary file that is copied."""
    import imageio.v2  # pyright: ignore[reportMissingImports]

    get_writer: Any = imageio.v2.get_writer  # its types are incomplete
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "video.mp4"
        with (
            warnings.catch_warnings(),
            get_writer(path, fps=fps, macro_block_size=1) as video,
        ):
            # FFmpeg is executed right after the fork, which JAX's threads do not mind.
            warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
            for frame in frames:
                video.append_data(_pad_to_even(frame))
        with path.open("rb") as written:
            shutil.copyfileobj(written, file)


def _pad_to_even(frame: np.ndarray) -> np.ndarray:
    """Repeat the last row or column of an odd size, which videos cannot have."""
    height, width = frame.shape[:2]
    return np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
