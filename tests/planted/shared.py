"""What several batches of planted cases share: two builds of one model, what is measured beside the tool."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, MutableMapping, Sequence
from pathlib import Path
from typing import Any

from planted.onnx_faults import Graph
from planted.twelfth.case import DIFFER, Thread, labelled


def two_graphs(
    cases: list[Thread], seed: int, build: Any, good: Any, bad: Any, name: str, truth: str, who: str = "",
    why: str = DIFFER, *, opset: int = 17, base_opset: int = 0, mode: str = "ort_fp32", kind: str = "converter",
    of: type[Graph] = Graph, **more: Any,
) -> None:  # fmt: skip
    """build(g, how): one model; good: how the baseline is built, bad: how the target. Healthy where nobody is named."""

    def make(folder: Path) -> tuple[Path, Path, Any]:
        saved = []
        for file, how, version in ((f"{name}.onnx", bad, opset), ("base.onnx", good, base_opset or opset)):
            g = of(seed=seed, opset=version)
            saved.append(g.save(folder / file, build(g, how)))
        return saved[0], saved[1], g.feeds

    more.setdefault("extra", who)
    add(cases, make, name, truth, who, why, mode=mode, kind=kind if who else "healthy", baseline="ort_fp32", **more)


def add(
    cases: list[Thread], make: Any, name: str, truth: str, who: str = "", why: str = "", *, mode: str, kind: str,
    **more: Any,
) -> None:  # fmt: skip
    """Add a case of this name."""

    def named() -> None: ...

    named.__name__, named.__doc__ = name, truth
    cases.append(labelled(named, "", kind, mode, who, why if who else "", make=make, **more))


def two_modules(
    module: MutableMapping[str, Any], seed: int, mode: str, other: str, name: str, truth: str, build: Any, good: Any,
    bad: Any, who: str = "", **more: Any,
) -> None:  # fmt: skip
    """build(how): a module of PyTorch and what it is fed, as the baseline and as the target have it.

    module: the globals of the batch, which gets a function for each, and both in ``BUILDS``. mode: that of most; other:
    why somebody is named.
    """
    import torch

    def seeded(how: Any) -> Callable[[], Any]:
        def made() -> Any:
            torch.manual_seed(seed)
            return build(how)

        made.__module__ = module["__name__"]
        return made

    target, base = seeded(bad), seeded(good)
    target.__name__, target.__doc__, base.__name__ = name, truth, f"{name}_before"
    module |= {name: target, base.__name__: base}
    module.setdefault("BUILDS", {})[name] = target, base
    more.setdefault("extra", who)
    kind, mode = more.pop("kind", "port" if who else "healthy"), more.pop("mode", mode)
    why = f"{other} {more.pop('why', '')}".strip() if who else ""
    module["case"]("", kind, mode, who, why, base.__name__, **more)(target)


def run_saved(one: Thread) -> Any:
    """Return the first output that stock ONNX Runtime gives of a case's file."""
    import onnxruntime as ort

    with tempfile.TemporaryDirectory() as folder:
        path, _, feeds = one.make(Path(folder))
        return ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, dict(feeds or {}))[0]


def print_measured(cases: Sequence[Thread], measure: Callable[[Thread], tuple[float, float]]) -> None:
    """Print what is so of the cases that the command names, without the tool."""
    for found in cases:
        if not sys.argv[1:] or any(word in found.name for word in sys.argv[1:]):
            try:
                print("{} ({}): {:.3g}, mended {:.3g}".format(found.name, found.mode, *measure(found)), flush=True)
            except Exception as error:
                print(found.name, type(error).__name__, error, flush=True)
