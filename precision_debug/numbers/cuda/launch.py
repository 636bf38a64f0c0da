# Triton's own interfaces have no types.
# mypy: ignore-errors
"""Starts a compiled Triton kernel without Triton's look at every argument, which takes longer than a small tensor."""

from __future__ import annotations

from typing import Any

__all__ = ["Launch"]


class Launch:
    """One kernel with its constants, for arguments whose types, alignments and widths do not change.

    kernel: its constants follow its arguments. options: num_warps and the like.
    """

    def __init__(self, kernel: Any, constants: dict[str, Any], **options: Any) -> None:
        self._kernel, self._constants, self._options = kernel, constants, options
        self._compiled: Any = None
        self._direct = True

    def __call__(self, programs: int, stream: int, tensors: tuple[Any, ...], numbers: tuple[int, ...]) -> Any:
        """Queue ``programs`` programs on the current stream, which is ``stream`` (0: it is not asked for).

        tensors, then numbers: the arguments in order.
        """
        if self._compiled is not None and self._direct:
            try:
                return self._run(programs, stream, tensors, numbers)
            except (TypeError, AttributeError):  # another Triton: its ordinary way
                self._direct = False
        self._compiled = self._kernel[(programs,)](*tensors, *numbers, **self._constants, **self._options)
        return self._compiled

    def _run(self, programs: int, stream: int, tensors: tuple[Any, ...], numbers: tuple[int, ...]) -> Any:
        compiled = self._compiled
        pointers = [tensor.data_ptr() for tensor in tensors]
        compiled.run(
            programs, 1, 1, stream, compiled.function, compiled.packed_metadata, None, None, None, *pointers, *numbers,
            *self._constants.values(),
        )  # fmt: skip
        return compiled
