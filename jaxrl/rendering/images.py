"""Pictures into files: a film, or one of them."""

import importlib.util
import shutil
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from jaxrl.errors import UserError
from jaxrl.utils import atomic_io

_NEEDED = ("imageio", "imageio_ffmpeg")  # for films
_INK = "#3a424b"


def save(pictures: Sequence[np.ndarray], path: Path, frames_per_second: float) -> None:
    """Write a GIF or MP4 of all pictures, or a PNG of the middle one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_io.replacing(path) as file:
        if path.suffix == ".mp4":
            _save_video(pictures, file, frames_per_second)
        else:
            _save_images(pictures, file, path.suffix, frames_per_second)


def _save_images(
    pictures: Sequence[np.ndarray], file: BinaryIO, suffix: str, frames_per_second: float
) -> None:
    from PIL import Image

    if suffix == ".png":
        Image.fromarray(pictures[len(pictures) // 2]).save(file, "PNG")
        return
    # Few flat colours: a palette keeps the file small and loses nothing.
    images = [Image.fromarray(p).convert("P", palette=Image.Palette.ADAPTIVE) for p in pictures]
    pause = round(1000 / frames_per_second)
    more = images[1:]
    images[0].save(file, "GIF", save_all=True, append_images=more, duration=pause, loop=0)


def captioned(picture: np.ndarray, text: str) -> np.ndarray:
    """Return a picture with a line of text in its upper left corner."""
    from PIL import Image, ImageDraw

    image = Image.fromarray(picture)
    pen = ImageDraw.Draw(image)
    pen.text((10, 8), text, fill=_INK, font_size=14, stroke_width=2, stroke_fill="#f4f6f8")
    return np.asarray(image)


def check(path: Path) -> None:
    """Refuse a film that cannot be written, before anything is played."""
    if path.suffix == ".mp4" and not (
        all(map(importlib.util.find_spec, _NEEDED)) and _has_ffmpeg()
    ):
        raise UserError(
            f"--out '{path}': films as .mp4 need imageio with FFmpeg: pip install 'jaxrl[video]'. "
            "A .gif or .html needs nothing."
        )


def _has_ffmpeg() -> bool:
    """Tell whether there is an FFmpeg: some builds of imageio-ffmpeg come without."""
    import imageio_ffmpeg  # pyright: ignore[reportMissingImports]

    try:
        return bool(imageio_ffmpeg.get_ffmpeg_exe())
    except RuntimeError:
        return False


def _save_video(pictures: Sequence[np.ndarray], file: BinaryIO, frames_per_second: float) -> None:
    """Let FFmpeg write a video of its own, which it knows by its name, and copy that."""
    import imageio.v2  # pyright: ignore[reportMissingImports]

    writer: Any = imageio.v2.get_writer  # it says too little of its types
    with tempfile.TemporaryDirectory() as folder:
        video = Path(folder) / "video.mp4"
        with (
            warnings.catch_warnings(),
            writer(video, fps=frames_per_second, macro_block_size=1) as film,
        ):
            # FFmpeg is started as a process of its own at once, which JAX's threads do not mind.
            warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
            for picture in pictures:
                film.append_data(_even(picture))
        with video.open("rb") as written:
            shutil.copyfileobj(written, file)


def _even(picture: np.ndarray) -> np.ndarray:
    """Repeat the last row or column where their number is odd, which videos cannot have."""
    high, wide = picture.shape[:2]
    return np.pad(picture, ((0, high % 2), (0, wide % 2), (0, 0)), mode="edge")
