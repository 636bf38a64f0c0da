"""The thirteenth batch in PyTorch: work cut into chunks wrongly, and a module that is bfloat16 itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from planted.eleventh_torch import names
from planted.torch_faults import Net, linear
from planted.twelfth.case import DIFFER, Thread, labelled

CASES: list[Thread] = []


def case(kind: str, mode: str, who: str = "", why: str = "", base: str = "", **more: Any) -> Callable[..., Any]:
    """A factory in a mode; base: the factory of the baseline, where there are two."""

    def register(build: Callable[[], Any]) -> Callable[[], Any]:
        def make(folder: Path) -> tuple[str, str | None, None]:
            file = folder / f"{build.__name__}_model.py"
            path = f"import sys\n\nsys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
            file.write_text(f"{path}from planted.thirteenth_torch import *  # noqa\n")
            return f"{file}:{build.__name__}", f"{file}:{base}" if base else None, None

        known = "torch_fp32" if base else ""
        CASES.append(labelled(build, "", kind, mode, who, why, make=make, baseline=known, **more))
        return build

    return register


def _placed(m: Any, x: Any, chunks: int, restart: bool) -> Any:
    length = x.shape[1] // chunks
    parts = []
    for n in range(chunks):
        place = torch.arange(length) + (0 if restart else n * length)
        parts.append(m.b(torch.tanh(m.a(x[:, n * length : (n + 1) * length]) + m.places[place])))
    return torch.cat(parts, 1)


def _reader(chunks: int, restart: bool) -> Any:
    torch.manual_seed(61)
    return Net(lambda m, x: _placed(m, x, chunks, restart), a=linear(16, 32), b=linear(32, 4),
               places=torch.randn(32, 32)), torch.randn(2, 32, 16)  # fmt: skip


def read_at_once() -> Any:
    return _reader(1, False)


@case("cut", "torch_fp32", names("index", "arange", "add", "arange"), f"{DIFFER} unfound", base="read_at_once",
      extra=names("index", "arange", "add", "tanh", "cat"), anyone=True)  # fmt: skip
def chunks_that_begin_at_place_nought() -> Any:
    """A prompt in four chunks, of which each counts its places from 0: the last three are others. The output differs,
    whoever is named."""
    return _reader(4, True)


def _listener(parts: int, keep: bool) -> Any:
    def body(m: Any, x: Any) -> Any:
        told, state = [], None
        for piece in x.chunk(parts, 1):
            y, state = m.gru(piece, state)
            told.append(y)
            state = state if keep else None
        return m.head(torch.cat(told, 1))

    torch.manual_seed(62)
    return Net(body, gru=nn.GRU(8, 16, batch_first=True), head=linear(16, 4)), torch.randn(2, 24, 8)


def heard_at_once() -> Any:
    return _listener(1, True)


# After the first run: the row's name, which the label could not know, is gru/gru/transpose#2.
@case("cut", "torch_fp32", names("gru") + " gru/gru/transpose#2 gru/gru gru/gru#1",
      f"{DIFFER} unfound", base="heard_at_once", anyone=True,
      extra=names("gru", "cat") + " gru/gru gru/gru#1 head")  # fmt: skip
def state_forgotten_between_three_pieces() -> Any:
    """A stream in three pieces whose state is not carried over: the second and third begin from nothing."""
    return _listener(3, False)


@case("healthy", "torch_compile")
def module_that_is_bfloat16_itself() -> Any:
    """A module and an input of bfloat16, compiled: the compiler fuses what eager rounds in between, both are as far
    from the truth as that type is."""
    torch.manual_seed(63)
    net = Net(lambda m, x: m.b(torch.nn.functional.gelu(m.a(x)) * torch.sigmoid(m.c(x))), a=linear(32, 64),
              b=linear(64, 8), c=linear(32, 64))  # fmt: skip
    return net.bfloat16(), torch.randn(16, 32).bfloat16()
