"""Which tensor of a transformers run is which of vLLM's: by the module that made it, or that it was given to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from precision_debug.protocols import Matches
from precision_debug.reasons import Reason
from precision_debug.reasons.ways import Way, way
from precision_debug.records import TensorMeta

from .reasons import say

__all__ = ["pair", "symbolic"]

_ATTENTION = "scaled_dot_product"


def symbolic(shape: Sequence[int], form: str) -> tuple[int | str, ...]:
    """Return a shape whose rows and tokens differ from run to run. form: see ``engine.server``."""
    if form == "flat":
        return ("rows x tokens", *shape[1:])
    if form == "heads":
        return ("rows", shape[1], "tokens", *shape[3:])
    return ("rows", "tokens", *shape[2:])


def pair(baseline: Sequence[TensorMeta], target: Sequence[TensorMeta]) -> Matches | None:
    """Pair vLLM's tensors with those of transformers' module calls; None where the baseline lists no such calls.

    The names that ``engine.server`` gives are a module's path, "PATH.input" for what a module is given, and
    "PATH.rotated_q" for what an attention's product is given.
    """
    calls = {
        name: (meta, given) for meta in baseline if meta.call is not None for name, given in meta.call.results.items()
    }
    if not calls:
        return None
    by_name = {meta.name: meta for meta in baseline}
    found: dict[str, tuple[str, Way]] = {}
    refused: dict[str, Reason] = {}
    for meta in target:
        base = by_name.get(meta.name) or _find_counterpart(meta.name, calls, baseline, by_name)
        if base is not None and len(base.shape or ()) == len(meta.shape or ()):
            found[meta.name] = (base.name, way("exact") if base.name == meta.name else way("graph metadata"))
        else:
            refused[meta.name] = say("inside_kernel")
    return Matches(found=found, refused=refused)


def _find_counterpart(
    name: str, calls: Mapping[str, tuple[TensorMeta, tuple[str, ...]]], baseline: Sequence[TensorMeta],
    by_name: Mapping[str, TensorMeta],
) -> TensorMeta | None:  # fmt: skip
    if name in calls:
        return calls[name][0]
    path, _, what = name.rpartition(".")
    if what == "experts":  # what all of them make of a token together, which is what the block gives
        return next((calls[key][0] for key in (path, f"{path}[0]") if key in calls), None)
    if what == "input" and path in calls and calls[path][1]:
        return by_name.get(calls[path][1][0])
    if what == "rotated_k":
        layer = next((part for part in path.split(".") if part.isdigit()), "")
        kept = [one for key, (one, _) in calls.items() if key.endswith(f"past_key_values.layers[{layer}].keys")]
        if kept:
            return _find_whole(kept[0], by_name)
    if what in {"rotated_q", "rotated_k"}:
        place = 0 if what == "rotated_q" else 1
        for meta in baseline:
            if _ATTENTION in meta.op_type and meta.call is not None and meta.call.scope == path:
                return by_name.get(meta.inputs[place]) if len(meta.inputs) > place else None
    return None


def _find_whole(kept: TensorMeta, by_name: Mapping[str, TensorMeta]) -> TensorMeta:
    """Return all tokens' keys, of which a sliding window's cache keeps the last ones: what is cut out of a tensor."""
    source = by_name.get(kept.inputs[0]) if len(kept.inputs) == 1 else None
    here, there = (tuple(one.shape or ()) if one is not None else () for one in (kept, source))
    cut = len(here) == len(there) == 4 and (here[:2], here[3:]) == (there[:2], there[3:]) and here != there
    return source if cut and source is not None else kept
