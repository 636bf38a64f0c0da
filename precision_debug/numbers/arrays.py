"""Whatever a framework calls a tensor, as a numpy array."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import BackendError

__all__ = ["as_array"]


def as_array(tensor: Any, *, name: str = "") -> np.ndarray[Any, Any]:
    """A numpy array over the tensor's memory where that is possible, a copy where it is not.

    Takes numpy arrays and whatever has ``__array__`` or ``__dlpack__``. Raw bfloat16 bits (uint16 from a tensor whose
    own dtype says bfloat16, as Paddle gives them) come back as bfloat16; torch's complex32, which numpy has not, as
    complex64 with every value kept. Raises BackendError on anything else.
    """
    if isinstance(tensor, np.ndarray):
        return tensor
    kind = str(getattr(tensor, "dtype", "")).lower()
    try:
        if "bfloat16" in kind and hasattr(tensor, "detach"):
            array = _torch_bfloat16(tensor)
        elif "complex32" in kind and hasattr(tensor, "detach"):
            array = _torch_complex32(tensor)
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


def _torch_complex32(tensor: Any) -> np.ndarray[Any, Any]:
    import torch

    pairs = torch.view_as_real(tensor.detach().cpu().resolve_conj().resolve_neg()).numpy()
    whole: np.ndarray[Any, Any] = np.ascontiguousarray(pairs, np.float32).view(np.complex64)
    return whole[..., 0]


def _torch_bfloat16(tensor: Any) -> np.ndarray[Any, Any]:
    import ml_dtypes
    import torch

    bits: np.ndarray[Any, Any] = tensor.detach().cpu().contiguous().view(torch.uint16).numpy()
    return bits.view(ml_dtypes.bfloat16)
