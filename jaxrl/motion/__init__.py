"""Reference motions: formats, library, resampling, metrics."""
