"""Keeps the tensors of somebody's loop on disk: one file, copied beside it, that needs numpy alone.

    record = Recorder("dump")                       # rank and sample from arguments, or RANK of the environment
    record("Linear", "layers.0.mlp", tensor)        # anything with __array__, or .detach().cpu() (PyTorch)
    record.watch(model)                             # every module of a PyTorch model, by forward hooks
    record.step()                                   # the next token, or training step

    dump/step_0000/rank_0/sample_0/index.jsonl      one JSON object a line: name, op_type, file, dtype, shape
    dump/step_0000/rank_0/sample_0/000001.npy

`precision_debug dumps dump/step_0000 --model_file M` reads it, and so do --baseline and --run_mode. A line is written
behind its file, and both are flushed: a crash loses nothing that came before it. bfloat16 and FP8, which .npy does not
know, are kept as their bits; the line says which. recorder.h beside it does the same in C++.

Licence: Apache-2.0. Copied from https://github.com/precision-debug/precision_debug
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import pathlib
from typing import Any

import numpy as np

__all__ = ["Recorder"]


class Recorder:
    """folder: made where it is missing; what an earlier run left of this rank and sample is refused.

    rank: None: RANK, or 0. names: keep these alone. most: elements a tensor; larger ones are left out, and said so.
    """

    def __init__(
        self, folder: str | os.PathLike[str], *, rank: int | None = None, sample: int = 0,
        names: set[str] | None = None, most: int | None = None,
    ) -> None:  # fmt: skip
        self.folder = pathlib.Path(folder)
        self.rank = int(os.environ.get("RANK", "0")) if rank is None else rank
        self.sample, self.names, self.most = sample, names, most
        self._step, self._count = 0, 0

    def __call__(self, op_type: str, name: str, tensor: Any) -> None:
        """Keep a tensor: the signature of Paddle's register_output_hook. A name may come again."""
        if self.names is not None and name not in self.names:
            return
        array, dtype = _as_array(tensor)
        line: dict[str, Any] = {"name": str(name), "op_type": str(op_type), "dtype": dtype, "shape": list(array.shape)}
        if self.most is not None and array.size > self.most:
            line["left_out"] = f"{array.size} elements"
        else:
            self._count += 1
            line["file"] = f"{self._count:06d}.npy"
            self._place().mkdir(parents=True, exist_ok=True)
            with open(self._place() / line["file"], "xb") as file:
                np.save(file, array, allow_pickle=False)
                file.flush()
                os.fsync(file.fileno())
        self._write(line)

    def watch(self, model: Any, front: str = "") -> None:
        """Keep what each module of a PyTorch model gives, by forward hooks, as ``front`` and the module's name.

        Of several tensors the first. A serving engine's layer hands its output on in two parts, (hidden, residual),
        which the next norm adds: what is kept of a layer with such a parameter is their sum.
        """
        for name, module in model.named_modules(prefix=front):
            apart = any(True for _ in module.children()) and "residual" in inspect.signature(module.forward).parameters
            module.register_forward_hook(functools.partial(self._gave, name, apart))

    def step(self, number: int | None = None) -> None:
        """Go on to the next step, or to this one."""
        self._step, self._count = self._step + 1 if number is None else number, 0

    def _gave(self, name: str, apart: bool, module: Any, _: Any, gave: Any) -> None:
        parts = gave if isinstance(gave, tuple) else (gave,)
        if apart and len(parts) == 2 and parts[1] is not None:
            parts = (parts[0] + parts[1],)
        if hasattr(parts[0], "detach"):
            self(type(module).__name__, name, parts[0])

    def _place(self) -> pathlib.Path:
        return self.folder / f"step_{self._step:04d}" / f"rank_{self.rank}" / f"sample_{self.sample}"

    def _write(self, line: dict[str, Any]) -> None:
        self._place().mkdir(parents=True, exist_ok=True)
        with open(self._place() / "index.jsonl", "a", encoding="utf-8") as index:
            index.write(json.dumps(line) + "\n")
            index.flush()
            os.fsync(index.fileno())


def _as_array(tensor: Any) -> tuple[Any, str]:
    """Return a contiguous array, and what its elements are."""
    if hasattr(tensor, "detach"):  # PyTorch, and what imitates it
        tensor = tensor.detach().cpu()
        if str(tensor.dtype) in {"torch.bfloat16", "torch.float8_e4m3fn", "torch.float8_e5m2"}:
            import torch

            bits = torch.int16 if tensor.element_size() == 2 else torch.uint8
            held = tensor.contiguous().view(bits).numpy()
            return held.view(np.uint16 if bits is torch.int16 else np.uint8), str(tensor.dtype).removeprefix("torch.")
    array = np.ascontiguousarray(tensor).reshape(np.shape(tensor))
    if array.dtype.kind == "V" or array.dtype.isbuiltin != 1:  # ml_dtypes: bfloat16 and others
        return array.view(np.uint8 if array.dtype.itemsize == 1 else np.uint16), array.dtype.name
    return array, array.dtype.name
