"""Commands for motion clips: `python -m jaxrl.clips.convert`, `.inspect` and `.plan`.

They read files by `jaxrl.motion`, and write .npz files in its native format. Each module has a
`main`; the package exports nothing.
"""
