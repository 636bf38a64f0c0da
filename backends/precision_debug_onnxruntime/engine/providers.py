"""Which of ONNX Runtime's execution providers really run a model, and how many of its nodes each of them took.

ONNX Runtime lists a provider that it was built with. Where the provider's libraries are missing it writes a line to its
log and goes on without it, and a node that a provider does not know goes to the next one: in the end to the CPU.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import io
import warnings
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from precision_debug.errors import BackendUnavailable
from precision_debug.reasons import Reason
from precision_debug.records import Doubt

from ..reasons import say
from .flatbuffer import root
from .taps import DOMAIN

__all__ = ["CPU", "RECORD", "Shares", "missing", "saved_shares", "shares_of", "unknown"]

CPU = "CPUExecutionProvider"
RECORD = "session.record_ep_graph_assignment_info"
"""The session's setting without which 1.24 and later do not tell who took which node; older ones do not know it."""

_SHOWN = 4
_SESSION_MODEL, _MODEL_GRAPH, _GRAPH_NODES = 1, 7, 2
_NODE_DOMAIN, _NODE_OP_TYPE, _NODE_PROVIDER = 2, 5, 7  # onnxruntime/core/flatbuffers/schema/ort.fbs


class Shares:
    """nodes: by provider, how many of each operator type it took; our taps are not among them."""

    def __init__(self, nodes: Mapping[str, Mapping[str, int]]) -> None:
        self.nodes = nodes

    def of(self, provider: str) -> int:
        """Return how many nodes a provider took."""
        return sum(self.nodes.get(provider, {}).values())

    def note(self, asked: str) -> Reason:
        """Return "CUDAExecutionProvider took 57 of 60 nodes (95.00 %); CPUExecutionProvider 3 (Shape 2, Gather 1)"."""
        total = sum(map(self.of, self.nodes))
        share = 100 * self.of(asked) / total if total else 0.0
        parts = [say("took", provider=asked, count=self.of(asked), all=total, share=share)]
        for name in self.nodes:
            if name != asked:
                most = Counter(self.nodes[name]).most_common(_SHOWN)
                kinds = [f"{kind} {number}" for kind, number in most] + ["…"] * (len(self.nodes[name]) > _SHOWN)
                parts.append(say("took_too", provider=name, count=self.of(name), kinds=kinds))
        return say("shares", parts=parts)

    def demand(self, asked: str, where: str) -> None:
        """Raise BackendUnavailable where the provider that was asked for took nothing."""
        if not self.of(asked):
            takers = " and ".join(name for name in self.nodes if self.of(name)) or "nobody"
            raise BackendUnavailable(
                f"{asked} took none of the model's nodes, {takers} would run it", where=where,
                hint="choose a run mode of the engine that does run it, such as ort_opt",
            )  # fmt: skip


def shares_of(session: Any) -> Shares | None:
    """Return who took which node of an open session; None where this ONNX Runtime does not tell (before 1.24)."""
    tell = getattr(session, "get_provider_graph_assignment_info", None)
    if tell is None:
        return None
    nodes: dict[str, Counter[str]] = {}
    for part in tell():
        counted = nodes.setdefault(str(part.ep_name), Counter())
        counted.update(str(node.op_type) for node in part.get_nodes() if node.domain != DOMAIN)
    return Shares(nodes)


def saved_shares(data: bytes) -> Shares:
    """Return the same out of a model that was saved in ONNX Runtime's own format by a session with these providers.

    Every release writes it, but none does where a provider compiles its nodes, as TensorRT's.
    """
    nodes: dict[str, Counter[str]] = {}
    model = root(data).table(_SESSION_MODEL)
    graph = None if model is None else model.table(_MODEL_GRAPH)
    for node in () if graph is None else graph.tables(_GRAPH_NODES):
        if node.text(_NODE_DOMAIN) == DOMAIN:
            continue
        nodes.setdefault(node.text(_NODE_PROVIDER), Counter())[node.text(_NODE_OP_TYPE)] += 1
    return Shares(nodes)


def unknown(asked: str) -> Doubt:
    """Return what is in doubt where nobody tells what a provider took."""
    import onnxruntime as ort

    detail = say("does_not_tell", version=ort.__version__)
    return Doubt(code="providers_unknown", values={"provider": asked, "detail": detail})


@functools.cache
def missing(provider: str) -> str:
    """Return why a provider that ONNX Runtime lists does not come up here; "" where it does. Never raises."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    ort.set_default_logger_severity(4)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            session = ort.InferenceSession(_smallest(), options, providers=[provider, CPU])
        if provider in session.get_providers():
            return ""
        return _cannot_load(provider, Path(ort.__file__).parent / "capi")
    except Exception as error:
        return say("provider_fails", provider=provider, error=" ".join(str(error).split())[:300])
    finally:
        ort.set_default_logger_severity(2)


def _cannot_load(provider: str, folder: Path) -> str:
    """Return what the loader says of the provider's library."""
    short = provider.removesuffix("ExecutionProvider").lower()
    for path in sorted(folder.glob(f"*onnxruntime_providers_{short}.*")):
        try:
            ctypes.CDLL(str(path))
        except OSError as error:
            if "cannot open shared object file" in str(error) or "could not find" in str(error).lower():
                variable = "PATH" if path.suffix == ".dll" else "LD_LIBRARY_PATH"
                return say("provider_libraries", provider=provider, error=str(error), variable=variable)
    return say("provider_stays_away", provider=provider)


def _smallest() -> bytes:
    """Return a model whose only node no accelerator takes, so that none builds an engine for it."""
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(name, TensorProto.STRING, [1]) for name in ("x", "y"))
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [x], [y])
    opset = helper.make_opsetid("", 13)
    return bytes(helper.make_model(graph, opset_imports=[opset], ir_version=7).SerializeToString())
