"""Which tensors of a torch model an exported file computes, from a run of both in float32 on the same input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from precision_debug import registry
from precision_debug.arrays import as_array
from precision_debug.errors import InputError
from precision_debug.fingerprint import Fingerprint, Pairing, pair_by_value, take
from precision_debug.protocols import Backend, Feeds
from precision_debug.records import ModelFiles, SessionSpec, TensorMeta

from .backend import TorchBackend

__all__ = ["pair_export", "renames_in"]


def pair_export(
    model_file: str,
    exported: str,
    *,
    feeds: Feeds | None = None,
    reference: str = "ort_fp32",
    options: Mapping[str, Any] | None = None,
    work_dir: str = "",
) -> Pairing:
    """Pair a torch model's tensors with those of a file that was exported from it.

    model_file: "FILE.py:FACTORY" or a .pt2. reference: the run mode in which the exported file computes in float32;
    its names are those that every other mode of the file goes by. feeds: the model's own examples where None.
    Raises PrecisionDebugError.
    """
    torch_backend = TorchBackend()
    ours = SessionSpec(model=ModelFiles(model_file=model_file), mode="torch_fp32", options=options or {})
    theirs = SessionSpec(model=ModelFiles(model_file=exported), mode=reference, work_dir=work_dir)
    feeds = feeds if feeds is not None else torch_backend.examples(ours)
    if not feeds:
        raise InputError(
            "the model has no example inputs to run on", where=model_file, hint="let the factory return them too"
        )
    backend, _ = registry.find(theirs.model, reference)
    return pair_by_value(
        _prints(torch_backend, ours, feeds),
        _prints(backend, theirs, feeds),
        modules=torch_backend.modules_in(exported),
    )


def renames_in(
    pairing: Pairing, exported: str, mode: str, *, feeds: Feeds, options: Mapping[str, Any] | None = None,
    work_dir: str = "",
) -> dict[str, str]:  # fmt: skip
    """The pairing in the names of another run mode of the exported file: target name to the torch model's name.

    A tensor that a mode renamed (fused, converted) is known by its origin. Raises PrecisionDebugError.
    """
    spec = SessionSpec(model=ModelFiles(model_file=exported), mode=mode, options=options or {}, work_dir=work_dir)
    backend, _ = registry.find(spec.model, mode)
    session = backend.open(spec, [feeds])
    try:
        sources = {meta.name: meta.origin or meta.name for meta in session.tensors}
    finally:
        session.close()
    found = {name: pairing.matches[source].baseline for name, source in sources.items() if source in pairing.matches}
    first = {base: name for name, base in reversed(found.items())}
    return {name: base for base, name in first.items()}


def _prints(backend: Backend, spec: SessionSpec, feeds: Feeds) -> list[tuple[TensorMeta, Fingerprint]]:
    session = backend.open(spec, [feeds])
    found: dict[str, Fingerprint | None] = {}

    def keep(op_type: str, name: str, tensor: Any, /) -> None:  # noqa: ARG001
        found[name] = take(as_array(tensor, name=name))

    try:
        session.run(feeds, keep)
        listed = list(session.tensors)
    finally:
        session.close()
    prints = ((meta, found.get(meta.name)) for meta in listed)
    return [(meta, fingerprint) for meta, fingerprint in prints if fingerprint is not None]
