"""A session whose tensors are shown in another model's layouts."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ..pairing.arrangement import Arrangement, arrange, put_back
from ..protocols import Feeds, Hook, Replace, Replacer, Session
from ..records import Operator, TensorMeta

__all__ = ["ArrangedSession"]


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
            dataclasses.replace(meta, shape=self._arranged[meta.name].result, view=meta.view or "transposed")
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
