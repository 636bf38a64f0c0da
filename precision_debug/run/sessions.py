"""Wrap a session: its tensors in another model's layouts, or one sample's own part of a batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import InputError, PrecisionDebugError
from ..pairing.arrangement import Arrangement, arrange, put_back
from ..protocols import Feeds, Hook, Replace, Replacer, Session
from ..reasons import say
from ..reasons.ways import way
from ..records import Operator, TensorMeta

__all__ = ["ArrangedSession", "CutSession"]


# A session whose tensors are shown in another model's layouts.

class ArrangedSession:
    """See protocols.Session. arranged: tensors of the session to how they become the other model's."""

    def __init__(self, session: Session, arranged: Mapping[str, Arrangement]) -> None:
        self._session, self._arranged = session, arranged
        self._shapes: dict[str, tuple[int, ...]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)  # what a layout changes nothing of

    @property
    def tensors(self) -> Sequence[TensorMeta]:
        return tuple(
            dataclasses.replace(meta, shape=self._arranged[meta.name].result, view=meta.view or way("transposed"))
            if meta.name in self._arranged else meta
            for meta in self._session.tensors
        )  # fmt: skip

    @property
    def replacer(self) -> Replacer | None:
        return None if self._session.replacer is None else self

    def run(self, feeds: Feeds, hook: Hook | None = None, names: Collection[str] | None = None) -> Mapping[str, Any]:
        def show(op_type: str, name: str, tensor: Any, /) -> None:
            assert hook is not None
            hook(op_type, name, self._shown(name, tensor))

        outputs = self._session.run(feeds, None if hook is None else show, names)
        return {name: self._shown(name, value) for name, value in outputs.items()}

    def run_replacing(self, feeds: Feeds, replace: Replace, names: Collection[str] | None = None) -> Mapping[str, Any]:
        """See protocols.Replacer."""

        def put(op_type: str, name: str, tensor: Any) -> Any:
            new = replace(op_type, name, self._shown(name, tensor))
            if new is None or name not in self._arranged:
                return new
            return put_back(new, self._arranged[name], np.shape(tensor))

        outputs = self._replacer.run_replacing(feeds, put, names)
        return {name: self._shown(name, value) for name, value in outputs.items()}

    def held(self, name: str, value: Any) -> Any:
        """See protocols.Replacer."""
        how = self._arranged.get(name)
        if how is None:
            return self._replacer.held(name, value)
        found = self._replacer.held(name, put_back(value, how, how.shape))
        return None if found is None else arrange(found, how)

    def operator(self, name: str) -> Operator | None:
        """See protocols.Replacer."""
        return self._replacer.operator(name)

    @property
    def _replacer(self) -> Replacer:
        assert self._session.replacer is not None
        return self._session.replacer

    def _shown(self, name: str, tensor: Any) -> Any:
        how = self._arranged.get(name)
        return tensor if how is None or np.size(tensor) != int(np.prod(how.shape)) else arrange(tensor, how)


# A session that is fed a sample among others, or with padding behind it, and shows that sample's own part.

class CutSession:
    """See protocols.Session. Shows of each tensor the part that is the sample's own.

    Both are run once when it opens, to see which tensors have such a part: what is put together from several samples in
    another order, or has other axes, has none, and is not shown."""

    def __init__(self, session: Session, alone: Feeds, variants: Sequence[Feeds]) -> None:
        self._session = session
        self._shapes = _run_for_shapes(session, alone)
        self._uncut = _find_size_tensors(session.tensors)
        for fed in variants:
            try:
                shapes = _run_for_shapes(session, fed)
            except PrecisionDebugError as error:
                said = say("variant_not_taken", detail=error.what)
                raise InputError(said, where="--input_variants", hint=say("variant_not_taken_hint")) from error
            for name, shape in shapes.items():
                own = self._shapes.get(name)
                if own is None or len(own) != len(shape) or any(a > b for a, b in zip(own, shape, strict=True)):
                    self._uncut.add(name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)  # what a cut changes nothing of

    @property
    def tensors(self) -> Sequence[TensorMeta]:
        return tuple(
            dataclasses.replace(
                meta, unseen=say("other_cut") if self._is_uncut(meta.name) else meta.unseen,
                shape=self._shapes.get(meta.name, meta.shape),
            )
            for meta in self._session.tensors
        )  # fmt: skip

    @property
    def replacer(self) -> Replacer | None:
        return None if self._session.replacer is None else self

    @property
    def replaces(self) -> bool:
        """See protocols.Replacer."""
        return self._replacer.replaces

    @property
    def workbench(self) -> Any:
        """See protocols.Workbench: tensors are cut in the host's memory."""
        return None

    def run(self, feeds: Feeds, hook: Hook | None = None, names: Collection[str] | None = None) -> Mapping[str, Any]:
        def show(op_type: str, name: str, tensor: Any, /) -> None:
            if hook is not None and not self._is_uncut(name):
                hook(op_type, name, self._own(name, tensor))

        outputs = self._session.run(feeds, None if hook is None else show, names)
        return {name: self._own(name, value) for name, value in outputs.items()}

    def run_replacing(self, feeds: Feeds, replace: Replace, names: Collection[str] | None = None) -> Mapping[str, Any]:
        """See protocols.Replacer: only the sample's own part is replaced, its neighbours stay as they are."""

        def put(op_type: str, name: str, tensor: Any) -> Any:
            if self._is_uncut(name):
                return None
            own = self._own(name, tensor)
            new = replace(op_type, name, own)
            if new is None or np.shape(new) == np.shape(tensor):
                return new
            whole = np.array(tensor)
            whole[tuple(slice(0, size) for size in own.shape)] = new
            return whole

        outputs = self._replacer.run_replacing(feeds, put, names)
        return {name: self._own(name, value) for name, value in outputs.items()}

    def held(self, name: str, value: Any) -> Any:
        """See protocols.Replacer."""
        return self._replacer.held(name, value)

    def operator(self, name: str) -> Operator | None:
        """See protocols.Replacer."""
        return self._replacer.operator(name)

    @property
    def _replacer(self) -> Replacer:
        assert self._session.replacer is not None
        return self._session.replacer

    def _is_uncut(self, name: str) -> bool:
        return name in self._uncut and not any(meta.name == name and meta.is_output for meta in self._session.tensors)

    def _own(self, name: str, tensor: Any) -> Any:
        shape, have = self._shapes.get(name), np.shape(tensor)
        if shape is None or name in self._uncut or len(shape) != len(have) or shape == have:
            return tensor
        return np.ascontiguousarray(np.asarray(tensor)[tuple(slice(0, size) for size in shape)])


_SIZES = frozenset({"Shape", "Size", "ShapeOf", "shape", "aten.sym_size"})


def _find_size_tensors(tensors: Sequence[TensorMeta]) -> set[str]:
    """Return what is computed from the tensors' sizes alone, which are others in a batch."""
    found: set[str] = set()
    for meta in tensors:  # in execution order
        if meta.op_type in _SIZES or (meta.inputs and found.issuperset(meta.inputs)):
            found.add(meta.name)
    return found


def _run_for_shapes(session: Session, feeds: Feeds) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}

    def look(_op: str, name: str, tensor: Any, /) -> None:
        found[name] = tuple(np.shape(tensor))

    for name, value in session.run(feeds, look).items():
        found.setdefault(name, tuple(np.shape(value)))
    return found
