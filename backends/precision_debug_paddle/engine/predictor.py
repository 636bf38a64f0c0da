"""Runs a predictor and shows what its hooks show, decoded and named as the operators are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from precision_debug.errors import BackendError, InputError
from precision_debug.protocols import Feeds

from ..failures import our_errors
from . import framework
from .framework import import_inference
from .program import is_lod, lod_of

__all__ = ["Runner", "decode_bfloat16"]

Array = np.ndarray[Any, Any]
Receiver = Callable[[str, str, Any], Any]


def decode_bfloat16(array: Array, dtype: str) -> Array:
    """bfloat16 that arrives as raw bits becomes bfloat16. dtype: what Paddle calls it."""
    if array.dtype == np.uint16 and ("bfloat16" in dtype.lower() or "bf16" in dtype.lower()):
        import ml_dtypes

        return array.view(ml_dtypes.bfloat16)
    return array


class Runner:
    """One predictor. where and mode: for messages."""

    def __init__(self, config: Any, *, where: str, mode: str) -> None:
        self._where, self._mode = where, mode
        with our_errors(where, mode=mode, params=str(config.params_file())):
            self._predictor = import_inference().create_predictor(config)
        self._receiver: Receiver | None = None
        self._failures: list[BaseException] = []
        self._hooked = self._writes = self._sequences = False

    @property
    def input_names(self) -> list[str]:
        return list(self._open().get_input_names())

    @property
    def output_names(self) -> list[str]:
        return list(self._open().get_output_names())

    def run(self, feeds: Feeds, receiver: Receiver | None = None) -> dict[str, Array]:
        """Run once. receiver(op_type, name, array): called for each tensor while it lives, with memory that Paddle
        will reuse. Returns the outputs by Paddle's name. Raises BackendError or InputError; what the receiver raises,
        as it is.
        """
        self.execute(feeds, receiver)
        return {name: self.output(name) for name in self.output_names}

    def execute(self, feeds: Feeds, receiver: Receiver | None = None, *, writes: bool = False) -> None:
        """Run once and leave the outputs where they are; ``output`` reads one.

        writes: what the receiver returns goes in place of the tensor, for the operators behind it.
        """
        predictor = self._open()
        self._feed(feeds)
        self._receiver, self._failures, self._writes = receiver, [], writes
        if receiver is not None and not self._hooked:
            predictor.register_output_hook(self._called)
            self._hooked = True
        try:
            with our_errors(self._where, mode=self._mode):
                predictor.run()
        finally:
            self._receiver = None
        if self._failures:
            raise self._failures.pop()

    def output(self, name: str) -> Array:
        """Return a copy of one output of the last run."""
        with our_errors(self._where, mode=self._mode):
            handle = self._open().get_output_handle(name)
            return decode_bfloat16(np.array(handle.copy_to_cpu()), str(handle.type()))

    def peek(self, name: str) -> Array | None:
        """Return the same; None where the operator never wrote it, as with an output that only training fills."""
        try:
            return self.output(name)
        except BackendError as error:
            if "holds no memory" in str(error):
                return None
            raise

    def close(self) -> None:
        self._predictor = None

    def _open(self) -> Any:
        if self._predictor is None:
            raise BackendError("the session is closed", where=self._where, hint="open it again")
        return self._predictor

    def _feed(self, feeds: Feeds) -> None:
        names = list(self._open().get_input_names())
        unknown = sorted(name for name in feeds if name not in names and not is_lod(name, names))
        if unknown:
            raise InputError(
                f"the model has no input {unknown[0]}", where=self._where, hint=f"its inputs: {' '.join(names)}"
            )
        for name in names:
            if name not in feeds:
                raise InputError(f"no value for input {name}", where=self._where, hint="give it with --inputs")
            array = np.ascontiguousarray(feeds[name])
            offsets = lod_of(name, feeds, array.shape[0] if array.ndim else 0, self._where)
            handle = self._open().get_input_handle(name)
            with our_errors(self._where, mode=self._mode):
                handle.reshape(list(array.shape))
                handle.copy_from_cpu(array)
                if offsets or self._sequences:  # those of the run before are kept otherwise
                    handle.set_lod(offsets)
                    self._sequences = True

    def _called(self, op_type: str, name: str, tensor: Any) -> None:
        """An exception that left a hook would end the process; it is kept and raised after the run."""
        if self._receiver is None or self._failures:
            return
        try:
            array = decode_bfloat16(np.asarray(tensor), str(tensor.dtype))
            new = self._receiver(op_type, name, array)
            if self._writes and new is not None:
                framework.write(tensor, array, new)
        except BaseException as error:
            self._failures.append(error)
