"""The two hooks: one keeps the baseline's tensors, the other compares the target's with them while they live.

Both have Paddle's signature, ``hook(op_type, tensor_name, tensor)``, and work in anybody's script::

    base = SaveBaseline()
    predictor_fp32.register_output_hook(base)
    ...                                        # run it
    check = AssertClose(base, atol=1e-3, rtol=1e-3)
    predictor_fp16.register_output_hook(check)
    ...                                        # run it on the same input
    check.report().to_excel("output.xlsx")
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import numpy as np

from . import judge, metrics
from .align import Alignment, align
from .errors import BackendError
from .records import Row, Status, TensorMeta, TensorStats, Tolerance
from .store import Store

if TYPE_CHECKING:
    from .report.model import Report

__all__ = ["AssertClose", "SaveBaseline", "as_array"]


def as_array(tensor: Any, *, name: str = "") -> np.ndarray[Any, Any]:
    """A numpy array over the tensor's memory where that is possible, a copy where it is not.

    Takes numpy arrays and whatever has ``__array__`` or ``__dlpack__``. Raw bfloat16 bits (uint16 from a tensor whose
    own dtype says bfloat16, as Paddle gives them) come back as bfloat16. Raises BackendError on anything else.
    """
    if isinstance(tensor, np.ndarray):
        return tensor
    kind = str(getattr(tensor, "dtype", "")).lower()
    try:
        if "bfloat16" in kind and hasattr(tensor, "detach"):
            array = _torch_bfloat16(tensor)
        elif hasattr(tensor, "__array__") or np.isscalar(tensor) or isinstance(tensor, (list, tuple)):
            array = np.asarray(
                tensor.detach().cpu() if hasattr(tensor, "detach") and hasattr(tensor, "cpu") else tensor
            )
        else:
            array = np.from_dlpack(tensor)
    except Exception as error:
        raise BackendError(
            f"a hook got {type(tensor).__name__}, which cannot be read as an array ({error})", where=name
        ) from error
    if array.dtype == np.uint16 and ("bfloat16" in kind or "bf16" in kind):
        import ml_dtypes

        return array.view(ml_dtypes.bfloat16)
    return array


def _torch_bfloat16(tensor: Any) -> np.ndarray[Any, Any]:
    import ml_dtypes
    import torch

    bits: np.ndarray[Any, Any] = tensor.detach().cpu().contiguous().view(torch.uint16).numpy()
    return bits.view(ml_dtypes.bfloat16)


class _Names:
    """A name that comes again (a loop, an operator in place) gets "#2", "#3", … on both sides alike."""

    def __init__(self) -> None:
        self._seen: collections.Counter[str] = collections.Counter()

    def key(self, name: str) -> str:
        self._seen[name] += 1
        return name if self._seen[name] == 1 else f"{name}#{self._seen[name]}"


class SaveBaseline:
    """Keeps what it is shown.

    names: keep only these (None: all). store: where to keep it; one of its own by default, freed by ``close``.
    wanted: asked once for each tensor; where it says no, only the tensor's statistics are kept.
    on_saved: called with the key after each tensor.
    """

    def __init__(
        self,
        names: Collection[str] | None = None,
        *,
        store: Store | None = None,
        wanted: Callable[[str], bool] | None = None,
        on_saved: Callable[[str, TensorStats | None], None] | None = None,
    ) -> None:
        self.store = store if store is not None else Store()
        self.stats: dict[str, TensorStats] = {}
        self._names = None if names is None else frozenset(names)
        self._wanted = wanted
        self._on_saved = on_saved
        self._keys = _Names()
        self._tensors: list[TensorMeta] = []

    @property
    def tensors(self) -> tuple[TensorMeta, ...]:
        """What was seen, in order."""
        return tuple(self._tensors)

    def __call__(self, op_type: str, tensor_name: str, tensor: Any, /) -> None:
        if self._names is not None and tensor_name not in self._names:
            return
        array = as_array(tensor, name=tensor_name)
        key = self._keys.key(tensor_name)
        self._tensors.append(TensorMeta(name=key, op_type=op_type, dtype=array.dtype.name, shape=array.shape))
        stats = None
        if self._wanted is None or self._wanted(key):
            self.store.put(key, array)
        else:
            stats = self.stats[key] = metrics.describe(array)
        if self._on_saved is not None:
            self._on_saved(key, stats)

    def close(self) -> None:
        """Free the tensors. What was already compared stays in its AssertClose."""
        self.store.close()


class AssertClose:
    """Compares what it is shown with the baseline and keeps one row a tensor.

    tolerance, or atol and rtol: when a tensor passes (see Tolerance).
    alignment: the pairing where both sides' tensors are known beforehand; None pairs by name.
    consume: free each baseline tensor once it was compared.
    on_row: called with each row as it is finished.
    """

    def __init__(
        self,
        baseline: SaveBaseline,
        *,
        atol: float | None = None,
        rtol: float | None = None,
        tolerance: Tolerance | None = None,
        alignment: Alignment | None = None,
        consume: bool = False,
        on_row: Callable[[Row], None] | None = None,
    ) -> None:
        given = tolerance or Tolerance()
        self.tolerance = Tolerance(
            atol=given.atol if atol is None else atol,
            rtol=given.rtol if rtol is None else rtol,
            rule=given.rule,
            check_error_stat=given.check_error_stat,
            quantile=given.quantile,
            equal_nan=given.equal_nan,
        )
        self.baseline = baseline
        self._alignment = alignment
        self._consume = consume
        self._on_row = on_row
        self._keys = _Names()
        self._tensors: list[TensorMeta] = []
        self._rows: list[Row] = []
        self._order = {meta.name: place for place, meta in enumerate(baseline.tensors)}
        self._base_types = {meta.name: meta.op_type for meta in baseline.tensors}

    @property
    def rows(self) -> tuple[Row, ...]:
        """The finished rows, in the target's order."""
        return tuple(self._rows)

    @property
    def tensors(self) -> tuple[TensorMeta, ...]:
        """What was seen, in order."""
        return tuple(self._tensors)

    def __call__(self, op_type: str, tensor_name: str, tensor: Any, /) -> None:
        array = as_array(tensor, name=tensor_name)
        key = self._keys.key(tensor_name)
        self._tensors.append(TensorMeta(name=key, op_type=op_type, dtype=array.dtype.name, shape=array.shape))
        row = self._row(op_type, key, array)
        self._rows.append(row)
        if self._on_row is not None:
            self._on_row(row)

    def report(self) -> Report:
        """The table of everything seen so far, ordered and completed by what the target never showed."""
        from .assemble import report_of_hooks

        return report_of_hooks(self)

    def _row(self, op_type: str, key: str, array: np.ndarray[Any, Any]) -> Row:
        pair = self._alignment.pairs.get(key) if self._alignment is not None else None
        base_name, how = (pair.base.name, pair.how) if pair is not None else (key, "exact")
        rival = self._alignment.rivals.get(key) if self._alignment is not None else None
        base = self.baseline.store.get(base_name) if rival is None else None
        if base is None:
            if rival is not None:
                reason = f"its baseline tensor is compared with {rival}"
            elif base_name in self.baseline.stats:
                reason = "its baseline tensor was not kept"
            else:
                reason = "the baseline has no tensor of this name"
            return Row(
                index=len(self._order), op_type=op_type, name=key, status=Status.UNMATCHED, reason=reason,
                target_name=key, target_op_type=op_type, target=metrics.describe(array),
            )  # fmt: skip
        comparison = metrics.compare(base, array, self.tolerance)
        passes, reason = judge.verdict(comparison, self.tolerance)
        if self._consume:
            self.baseline.store.drop(base_name)
        return Row(
            index=self._order.get(base_name, len(self._order)),
            op_type=self._base_types.get(base_name, op_type),
            name=base_name,
            status=Status.PASS if passes else Status.FAIL,
            reason=reason,
            target_name=key,
            target_op_type=op_type,
            paired_by=how,
            view=pair.target.view if pair is not None else "",
            comparison=comparison,
        )


def alignment_of(check: AssertClose) -> Alignment:
    """The pairing that a finished check used, rebuilt from what both hooks saw."""
    return align(check.baseline.tensors, check.tensors)
