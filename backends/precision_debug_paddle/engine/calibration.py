"""Calibration tables: ``trt_calib_<hash>`` in ``_opt_cache`` beside the program, one a subgraph and set of marks.

Paddle 2.6 writes them there, but looks for them in the cache folder where one is set; so none is set while it
calibrates, and tables are copied from the user's folder and back.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from precision_debug.reasons import Reason

from ..reasons import say

__all__ = ["Tables"]


class Tables:
    """The tables of one build. folder: the program's. cache: the user's folder, "" where there is none."""

    def __init__(self, folder: Path, cache: str) -> None:
        self._inside, self._cache = folder / "_opt_cache", cache
        self._existing: tuple[str, ...] = ()
        found = sorted(Path(cache).glob("trt_calib_*")) if cache else []
        if found:
            self._inside.mkdir(exist_ok=True)
            self._existing = tuple(path.name for path in found)
            for path in found:
                shutil.copyfile(path, self._inside / path.name)

    def note(self, samples: int, build: int) -> Reason:
        """After the predictor is gone: keep what it wrote, and say where the int8 scales come from."""
        new = [path for path in sorted(self._inside.glob("trt_calib_*")) if path.name not in self._existing]
        for path in new if self._cache else ():
            shutil.copyfile(path, Path(self._cache, path.name))
        if new:
            return say("calibrated", count=samples, build=build)
        if self._existing:
            return say("scales_cached", build=build)
        return say("no_table", build=build)
