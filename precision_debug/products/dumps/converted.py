"""A model beside the file that a converter made of it, in another format, with names and layouts of its own.

Both run once in float32 before the comparison proper, and are paired there (see ``match_tensors``). What the converter
turned is turned back wherever it is shown.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ... import recording, registry
from ...numbers.arrays import as_array
from ...observe.store import Store
from ...pairing.arrangement import Arrangement
from ...protocols import Feeds, Matches, Session
from ...reasons import Reason, say
from ...reasons.ways import Way, way
from ...run.plan import Opening
from .match_tensors import match_tensors
from .pairing.found_tensor import FoundTensor

__all__ = ["match_converted"]


def match_converted(
    first: Opening, second: Opening, feeds: Feeds, *, target_feeds: Feeds, folder: Path, memory_budget: int | None
) -> tuple[Matches, Mapping[str, Arrangement], tuple[Reason, ...]]:
    """Return the pairs, how each tensor of the target becomes the baseline's, and what to say of them.

    target_feeds: the same values under the target's names, in its layouts. Raises PrecisionDebugError.
    """
    with contextlib.ExitStack() as stack:
        ours, theirs = (
            stack.enter_context(contextlib.closing(_open_in_float32(side, fed)))
            for side, fed in ((first, feeds), (second, target_feeds))
        )
        store = stack.enter_context(Store(folder=folder, memory_budget=memory_budget))
        others: dict[str, FoundTensor] = {}

        def keep(op_type: str, name: str, tensor: Any, /) -> None:
            array = as_array(tensor, name=name)
            if name not in others and array.dtype.kind not in "OUSTMm":
                others[name] = FoundTensor(name=name, value=array.copy(), shape=tuple(array.shape), op_type=op_type)

        theirs.run(target_feeds, keep)
        found = match_tensors(ours, feeds, list(others.values()), store)
    pairs = {name: (match.base, _describe_match(match.how, match.distance)) for name, match in found.found.items()}
    arranged = {
        name: match.arrangement for name, match in found.found.items()
        if match.arrangement.axes or match.arrangement.result != others[name].shape
    }  # fmt: skip
    note = say(
        "paired_converted", count=len(pairs), all=len(others), path=second.spec.model.path or first.spec.model.path,
        turned=len(arranged), missing=len(found.missing),
    )  # fmt: skip
    return Matches(found=pairs, refused=found.refused), arranged, (note,)


def _describe_match(how: Way, distance: float | None) -> Way:
    return how if distance is None else way("{how}, relative distance {number}", how=how, number=f"{distance:.2g}")


def _open_in_float32(side: Opening, feeds: Feeds) -> Session:
    if side.recording:
        return recording.open_recording(side.recording)
    assert side.mode is not None
    backend, mode = registry.find(side.spec.model, side.mode.baseline)
    return backend.open(dataclasses.replace(side.spec, mode=mode.name), [feeds])
