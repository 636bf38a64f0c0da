"""What the files of a run prove by themselves, before anything is run."""

from __future__ import annotations

import contextlib

from ..errors import PrecisionDebugError
from ..numbers.precisions import is_narrow
from ..reasons import Reason, say
from .plan import Opening
from .second_opinion import same_kernels

__all__ = ["proven"]

_ENDING = ".onnx"


def proven(baseline: Opening, target: Opening, *, asked: bool) -> list[Reason]:
    """One sentence each; nothing of files that are not ONNX, or cannot be read. asked: for a second opinion, too."""
    backend = target.backend
    first, second = baseline.spec.model, target.spec.model
    if backend is None or not second.model_file.lower().endswith(_ENDING):
        return []
    from ..onnx.provable import provable
    from ..onnx.provable_apart import provable_apart
    from ..onnx.without_weights import read_light

    found: list[Reason] = []
    with contextlib.suppress(PrecisionDebugError):
        theirs = read_light(second.model_file)
        if baseline.backend is backend and not asked and (kernels := same_kernels(theirs)):
            found.append(say("same_kernels", types=kernels))
        to = target.precision if is_narrow(target.precision) else ""
        found += provable(theirs, to=to, int32=backend.name == "tensorrt", kept=_kept(target) if to else ())
        if baseline.backend is not None and first != second and first.model_file.lower().endswith(_ENDING):
            found += provable_apart(read_light(first.model_file), theirs)
    return found


def _kept(opening: Opening) -> frozenset[str]:
    """Return what a side's own settings leave in a wider type, by the names of nodes or of tensors.

    Raises PrecisionDebugError."""
    keeper = opening.capabilities.keeper
    keep = keeper.keep(opening.spec) if keeper is not None else None
    listed = keep.options(()).values() if keep is not None else ()
    return frozenset(name for value in listed if isinstance(value, (tuple, list)) for name in map(str, value))
