"""What the files of a run prove by themselves, before anything is run."""

from __future__ import annotations

import contextlib

from ..errors import PrecisionDebugError
from ..numbers.precisions import is_narrow
from ..reasons import Reason
from .plan import Opening

__all__ = ["proven"]

_ENDING = ".onnx"


def proven(baseline: Opening, target: Opening) -> list[Reason]:
    """One sentence each; nothing of files that are not ONNX, or cannot be read."""
    backend = target.backend
    first, second = baseline.spec.model, target.spec.model
    if backend is None or not second.model_file.lower().endswith(_ENDING):
        return []
    from ..onnx.model import read_model
    from ..onnx.provable import provable
    from ..onnx.provable_apart import provable_apart

    found: list[Reason] = []
    with contextlib.suppress(PrecisionDebugError):
        theirs = read_model(second.model_file)
        to = target.precision if is_narrow(target.precision) else ""
        found += provable(theirs, to=to, int32=backend.name == "tensorrt")
        if baseline.backend is not None and first != second and first.model_file.lower().endswith(_ENDING):
            found += provable_apart(read_model(first.model_file), theirs)
    return found
