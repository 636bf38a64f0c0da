"""In which precision a session ran: as its backend reads it, else by its layers, else by the types of its tensors."""

from __future__ import annotations

from collections.abc import Sequence

from ..explain.operators import MOVE, plain_type
from ..explain.units import INTEGERS
from ..inspector import real_precision
from ..numbers.precisions import BEFORE_ROUNDING, BEHIND_FLOAT32, MIXED, QUANTISED, Precision, promised
from ..protocols import Executed, Session
from ..records import TensorMeta
from .plan import Opening

__all__ = ["executed_of"]

_WIDE = ("FP32", "TF32", "FP64")

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


def _is_low_operator(metas: Sequence[TensorMeta], narrow: Precision) -> bool:
    """Of all results of one operator; what is seen before it is rounded was computed in float32."""
    return not any(meta.view == BEFORE_ROUNDING for meta in metas) and any(_is_low(meta, narrow) for meta in metas)


def _computes(meta: TensorMeta) -> bool:
    """Whether a tensor is an operator's own arithmetic: what only moves numbers about has no precision."""
    floats = not meta.dtype or "float" in meta.dtype or meta.dtype in INTEGERS
    return floats and meta.op_type not in _NO_OPERATOR and plain_type(meta.op_type) not in MOVE


def _is_low(meta: TensorMeta, narrow: Precision) -> bool:
    if meta.view.endswith(BEHIND_FLOAT32):
        return False
    held = meta.view.removeprefix("rounded to ").split()[0] if meta.view.startswith("rounded to ") else meta.dtype
    if held.startswith(narrow.shown_by) or meta.op_type.startswith(narrow.shown_by):  # float8.mm is held in bfloat16
        return True
    return narrow.short in ("INT8", "INT4") and (meta.view == "dequantised" or bool(QUANTISED.search(meta.op_type)))
