"""Where an operator of a training step belongs, so that both runs give it one name.

An operator of the backward pass belongs to the forward operator that made its node: torch numbers nodes as they are
made, and tells which one is at work. What accumulates a gradient, and what the optimiser does, belongs to a parameter.
Operators that checkpointing computes again run in module calls of their own, and are named after these ("block@2").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from precision_debug.settings.setting import BACKWARD, FORWARD, OPTIMISER

from ...naming import QUANTISED
from ..call_values import ByTensor, start_of
from .rank_starts import own_tensors, prefix_of
from .step import TrainingStep

__all__ = ["Phases", "phases_of"]


_CAST = ":to["

_NO_NODE = "_local_scalar_dense"
"""What reads a number out of a tensor (``int(x)``): one run may do so alone, and no backward pass is its own."""


class Phases:
    """Of one run, by its thread. parameters: (name, tensor). scale: what the loss is multiplied by.

    rank: of several, the one that runs now; None: there is one, or none runs. on_rank: told as a rank begins.
    """

    def __init__(self, parameters: Iterable[tuple[str, Any]], scale: float = 1.0) -> None:
        self._scale = scale
        self.phase = FORWARD
        self.rank: int | None = None
        self.on_rank: Callable[[str], None] | None = None
        self._parameters = [*parameters]
        self._owner_of_node: dict[int, str] = {}
        self._casts: list[int] = []  # nodes of casts that wait for their reader
        self._source_of: dict[str, str] = {}
        self._of = ByTensor[str]()  # tensor to the parameter that it belongs to
        self._at: dict[int, str] = {}  # start of memory to the same
        for name, one in self._parameters:
            self._belongs(one, name)

    @property
    def facts(self) -> dict[str, Any]:
        """What a tensor's TensorMeta says of the step."""
        return {"phase": self.phase, "scaled": self._scale, "rank": self.rank}

    @property
    def prefix(self) -> str:
        """What names begin with now."""
        return "" if self.rank is None else prefix_of(self.rank)

    def begin_rank(self, rank: int | None) -> None:
        """A rank's step begins; None: all are done."""
        self.rank, self.phase = rank, FORWARD if rank is not None else self.phase
        if self.on_rank is not None:
            self.on_rank(self.prefix)

    def begin(self, phase: str) -> None:
        """The next phase begins."""
        self.phase = phase
        if phase == OPTIMISER:
            for name, one in self._parameters:
                if one.grad is not None:
                    self._belongs(one.grad, name)

    def operator_extra(self, name: str, scope: str, extra: Mapping[str, str]) -> Mapping[str, str]:
        """An operator of this name was run; what its row tells, and its phase. scope: see ``scope``; "": of a module's
        own forward, or of one that is computed again."""
        source, name = extra.get("Source", ""), name.removeprefix(self.prefix)
        if not scope:
            self._source_of.setdefault(name, source)
            number = torch.autograd._get_sequence_nr() - 1  # type: ignore[attr-defined]
            if name.rpartition("/")[2].startswith(_NO_NODE):
                pass
            elif _CAST in name.rpartition("/")[2]:  # one run has it and the other may not: it is its reader's
                self._casts.append(number)
            else:
                for one in (*self._casts, number):
                    self._owner_of_node.setdefault(one, name)
                self._casts.clear()
        else:
            source = self._source_of.get(scope.removeprefix(f"{BACKWARD}/"), source)
        rank = {} if self.rank is None else {"Rank": str(self.rank)}
        return {**extra, "Source": source, "Phase": self.phase, **rank}

    def scopes(self, args: Any, values: Sequence[Any]) -> list[str]:
        """Where each result of an operator on the tensors of many parameters stands; []: it is on one's."""
        if self.phase != OPTIMISER:
            return []
        many = len(values)
        lists = [one for one in args if isinstance(one, (list, tuple)) and len(one) == many]
        for place, value in enumerate(values if lists and isinstance(values[0], torch.Tensor) else ()):
            self.follow([one[place] for one in lists if isinstance(one[place], torch.Tensor)], [value])
        owners = [self.parameter_of(value) if isinstance(value, torch.Tensor) else "" for value in values]
        return [f"{OPTIMISER}/{owner}" for owner in owners] if all(owners) else []

    def scope(self, inputs: Iterable[Any]) -> str:
        """Of an operator on these tensors; "": the module call that runs now."""
        if self.phase == FORWARD:
            return ""
        if self.phase == OPTIMISER:
            owner = next((found for one in inputs if (found := self.parameter_of(one))), "")
            return f"{OPTIMISER}/{owner}" if owner else OPTIMISER
        node: Any = torch._C._current_autograd_node()
        if node is None:
            return BACKWARD
        variable = getattr(node, "variable", None)
        owner = self._of.get(variable, "") if variable is not None else ""
        owner = f"{owner}.grad" if owner else self._owner_of_node.get(node._sequence_nr(), "")
        layer, slash, operator = owner.rpartition("/")
        if slash and operator.startswith(QUANTISED):  # one node does all of the layer's backward pass
            owner = f"{layer}/{operator.partition('.')[0]}"
        return f"{BACKWARD}/{owner}" if owner else BACKWARD

    def parameter_of(self, tensor: Any) -> str:
        """Return the parameter that a tensor of the optimiser's belongs to; "": none."""
        known: str = self._of.get(tensor, "")
        return known or self._at.get(start_of(tensor) or -1, "")

    def follow(self, inputs: Iterable[Any], made: Iterable[Any]) -> None:
        """What the optimiser makes of a parameter's tensors is that parameter's."""
        if self.phase != OPTIMISER:
            return
        owner = next((found for one in inputs if (found := self.parameter_of(one))), "")
        for one in made:
            if owner:
                self._of[one] = owner

    def _belongs(self, tensor: Any, name: str) -> None:
        self._of[tensor] = name
        start = start_of(tensor)
        if start:
            self._at[start] = name


def phases_of(module: Any) -> Phases | None:
    """Of a run of a training step that begins; None where a module is none."""
    if not isinstance(module, TrainingStep):
        return None
    own = [(name, one) for _, name, one in own_tensors(module.ranks, parameters=True)]
    phases = Phases([*module.inner.named_parameters(), *own], module.scale)
    module.__dict__.update(on_phase=phases.begin, on_rank=phases.begin_rank)
    return phases
