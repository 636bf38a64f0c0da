"""The kernels of a graph that inductor compiled: what it calls, in order, and which operators it fused into each."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import re
import threading
from collections.abc import Iterator

from precision_debug.inspector import EngineLayer, EngineTensor
from precision_debug.numbers.number_types import NUMBER_TYPES

__all__ = ["kernels_of", "record_sources"]

_LISTENING = threading.Lock()
_CALL = re.compile(r"^\s*(?:(extern_kernels)\.(\w+)|((?:triton|cpp)\w*?_(?:fused|tem)_?\w*?)(?:\.run)?)\(")
_OF = re.compile(r"Original ATen: \[([^\]]*)\]")
_MADE = re.compile(r"^\s*(buf\d+) = empty_strided\w*\(\(([^)]*)\), .*torch\.(\w+)\)")
_AGAIN = re.compile(r"^\s*(buf\d+) = (?:reinterpret_tensor\()?(buf\d+)")
_BUFFER = re.compile(r"\bbuf\d+\b")
_TYPES = {**{one.name: one.short for one in NUMBER_TYPES.values()}, "bool": "BOOL"}
_KINDS = {"extern_kernels": "library", "triton": "Triton", "cpp": "C++"}


@contextlib.contextmanager
def record_sources() -> Iterator[list[str]]:
    """Python sources of the graphs that are compiled inside, in order; empty where this torch tells nobody."""
    found: list[str] = []
    try:
        from torch._inductor.graph import GraphLowering
    except ImportError:
        GraphLowering = None  # type: ignore[assignment, misc]  # noqa: N806
    if not hasattr(GraphLowering, "save_output_code"):
        yield found
        return
    original = GraphLowering.save_output_code

    def tell(code: str) -> None:
        found.append(code)
        if original is not None:
            original(code)

    with _LISTENING:
        GraphLowering.save_output_code = staticmethod(tell)
        try:
            yield found
        finally:
            GraphLowering.save_output_code = original


def kernels_of(sources: list[str]) -> tuple[EngineLayer, ...]:
    """Return each call of a kernel as a layer: its name ("#2" from the second call on), its kind, its operators, and
    what it writes."""
    layers, seen = [], collections.Counter[str]()
    for source in sources:
        buffers: dict[str, EngineTensor] = {}
        operators: tuple[str, ...] = ()
        inside = False
        for line in source.splitlines():
            inside = inside or line.lstrip().startswith("def call(")
            if line.startswith(("def ", "class ", "runner")) and not line.startswith("def call("):
                inside = False
            made, again = _MADE.match(line), _AGAIN.match(line)
            if made is not None:
                shape = tuple(int(size) for size in made[2].split(",") if size.strip().isdigit())
                buffers[made[1]] = EngineTensor(name=made[1], shape=shape, dtype=_TYPES.get(made[3], made[3]))
            elif again is not None and again[2] in buffers:
                buffers[again[1]] = dataclasses.replace(buffers[again[2]], name=again[1])
            of = _OF.search(line)
            if of is not None:
                operators = tuple(dict.fromkeys(one.strip() for one in of[1].split(",") if one.strip()))
            call = _CALL.match(line) if inside else None
            if call is None:
                continue
            name = f"{call[1]}.{call[2]}" if call[1] else call[3]
            seen[name] += 1
            written = [one for one in _BUFFER.findall(line) if one in buffers][-1:]  # results come last
            layers.append(
                EngineLayer(
                    name=name if seen[name] == 1 else f"{name}#{seen[name]}",
                    layer_type=_KINDS[call[1] or name.partition("_")[0]],
                    outputs=tuple(buffers[one] for one in written),
                    onnx_nodes=operators if operators or call[1] else _name_operators(name),
                )
            )
            operators = ()
    return tuple(layers)


def _name_operators(kernel: str) -> tuple[str, ...]:
    """Return what a C++ kernel's name says of its operators; they stand nowhere else."""
    return (kernel.partition("_fused_")[2].rpartition("_")[0],)
