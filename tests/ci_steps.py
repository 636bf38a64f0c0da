"""The module behind .ci/run, which lies in a folder that nothing can be imported from."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["ci_steps"]


@cache
def ci_steps() -> Any:
    """.ci/steps.py, loaded once."""
    spec = importlib.util.spec_from_file_location("ci_steps_of_run", Path(__file__).parent.parent / ".ci" / "steps.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
