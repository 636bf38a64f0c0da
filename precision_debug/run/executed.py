"""In which precision a session ran: as its backend reads it, else by its layers, else by the types of its tensors."""

from __future__ import annotations

from collections.abc import Sequence

from ..explain.operators import MOVE, plain_type
from ..explain.units import INTEGERS
from ..inspector import has_body, real_precision
from ..numbers.precisions import BEFORE_ROUNDING, BEHIND_FLOAT32, CONVERTS, MIXED, QUANTISED, Precision, promised
from ..protocols import Executed, Session
from ..reasons import say
from ..records import Doubt, TensorMeta
from .plan import Opening

__all__ = ["executed_of", "not_run"]

_WIDE, _INTEGERS = ("FP32", "TF32", "FP64"), ("INT8", "INT4")

_NO_OPERATOR = frozenset({"Input", "Constant", "Output", "Parameter", "feed", "data", "Result"})


def executed_of(opening: Opening, session: Session) -> Executed | None:
    """What ran in a side's low precision, of a session that has run; None where nobody can tell, or it has none."""
    narrow = promised(opening.precision)
    if not narrow.narrow:
        return None
    reader = opening.capabilities.precision_reader
    executed = reader.executed(session) if reader is not None else None
    if executed is not None:
        return Executed(low=executed[0], of=executed[1], precision=narrow.short)
    if any(map(has_body, session.layers)):
        return None  # a count of the others would pass for one of all
    busy = (one for one in session.layers if not one.is_reformat and plain_type(one.layer_type) not in MOVE)
    layers = [real_precision(layer)[0] for layer in busy]
    known = [name for name in layers if name]
    if known:
        mixed = opening.precision == MIXED
        low = sum(name not in _WIDE if mixed else name == narrow.short for name in known)
        return Executed(low=low, of=len(known), precision=narrow.short)
    computed: dict[str, list[TensorMeta]] = {}
    for meta in session.tensors:
        if _computes(meta):
            computed.setdefault(meta.node or meta.name, []).append(meta)
    low = sum(_is_low_operator(metas, narrow) for metas in computed.values())
    return Executed(low=low, of=len(computed), precision=narrow.short) if computed else None


def not_run(opening: Opening, session: Session) -> Doubt | None:
    """That nothing ran in the precision that a mode promises, of a session that has run, in every engine alike.

    It takes a session that knows: by its backend's reader, or by views that tell what computed in float32. What the
    session itself says of it is more exact. An engine's layers are read by ``report.doubts``, which asks how sure their
    types are, and so is the error of tensors that only have a type: what is shown as float32 may have been rounded.
    """
    if session.layers or opening.mode is None or opening.mode.simulation:
        return None
    if any(doubt.code == "precision_not_run" for doubt in session.doubts):
        return None
    reader = opening.capabilities.precision_reader
    told = reader is not None and reader.executed(session) is not None
    if not told and not any(meta.view.endswith(BEHIND_FLOAT32) for meta in session.tensors):
        return None
    executed = executed_of(opening, session)
    if executed is None or executed.low or not executed.of:
        return None
    return Doubt(code="precision_not_run", values={"precision": executed.precision, "detail": say("none_of")})


def _is_low_operator(metas: Sequence[TensorMeta], narrow: Precision) -> bool:
    """Return whether an operator, of which these are all results, ran in the low precision.

    What is seen before it is rounded was computed in float32, and so was what is listed in float32 beside the integers
    that a converter makes of it."""
    if narrow.short in _INTEGERS:
        return all(_is_low(meta, narrow) for meta in metas)
    return not any(meta.view == BEFORE_ROUNDING for meta in metas) and any(_is_low(meta, narrow) for meta in metas)


def _computes(meta: TensorMeta) -> bool:
    """Whether a tensor is an operator's own arithmetic: what only moves or converts numbers has no precision."""
    floats = not meta.dtype or "float" in meta.dtype or meta.dtype in INTEGERS
    kind = plain_type(meta.op_type)
    return floats and meta.op_type not in _NO_OPERATOR and kind not in MOVE and not CONVERTS.fullmatch(kind)


def _is_low(meta: TensorMeta, narrow: Precision) -> bool:
    if meta.view.endswith(BEHIND_FLOAT32):
        return False
    held = meta.view.removeprefix("rounded to ").split()[0] if meta.view.startswith("rounded to ") else meta.dtype
    if held.startswith(narrow.shown_by) or meta.op_type.startswith(narrow.shown_by):  # float8.mm is held in bfloat16
        return True
    return narrow.short in _INTEGERS and (meta.view == "dequantised" or bool(QUANTISED.search(meta.op_type)))
