"""`import checkout` first, in each script of this folder: this checkout is what it imports and what it starts.

So that a script starts from any folder, with nothing set before it: the project, its backends and the modules of tests/
are found here, by the processes that it starts too. What PYTHONPATH held stays behind them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [str(ROOT), str(ROOT / "backends"), str(ROOT / "tests"), str(ROOT / "tests" / "gpu")]

sys.path[:0] = [folder for folder in SOURCES if folder not in sys.path]
_held = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder and folder not in SOURCES]
os.environ["PYTHONPATH"] = os.pathsep.join([*SOURCES, *_held])
