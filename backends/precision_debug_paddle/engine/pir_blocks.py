"""Which operator of a PIR program's loop or branch each call of Paddle's hook is.

The hook enters the bodies: an operator comes as "pd_op.tanh_:6", type and place in its block, with a variable whose
name begins with its block's own mark; the loop or branch itself comes behind what ran inside it.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..naming import plain_type

__all__ = ["Block", "Call", "Item", "Op", "Reader", "copy_call", "group_series", "mark_of"]

_INSTRUCTIONS = {"while_instruction": "while", "if_instruction": "if"}
_MARK = "_inner_var_"


@dataclass(frozen=True, kw_only=True)
class Op:
    """names: of its dense outputs; "" of one that is not an activation. reads: numbers of the values that it reads."""

    kind: str
    names: tuple[str, ...]
    reads: tuple[int, ...]
    outputs: tuple[int, ...]
    blocks: tuple[Block, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Block:
    """ops: in the order of their instructions. arguments, yields: what a loop carries in, and what its body yields."""

    ops: tuple[Op, ...]
    arguments: tuple[int, ...] = ()
    yields: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call of the hook. place: among the instructions of its block, -1 where it does not say."""

    op_type: str
    variable: str
    array: Any

    @property
    def kind(self) -> str:
        text = plain_type(self.op_type)
        return _INSTRUCTIONS.get(text, text)

    @property
    def place(self) -> int:
        number = self.op_type.rpartition(":")[2]
        return int(number) if number.isdigit() else -1


@dataclass(frozen=True, kw_only=True)
class Item:
    """A value of a body. full: with the iteration, as "name@2", where it lies in a loop."""

    name: str
    full: str
    call: Call


def mark_of(variable: str) -> str:
    """Return what the variables of one block begin with; "" of those of the program's outputs."""
    return variable.rpartition(_MARK)[0]


@dataclass
class Reader:
    """Of one run of a program that no pass has changed. ``problem`` says what did not fit the program."""

    root: Block
    problem: str = ""
    _turns: collections.Counter[int] = field(default_factory=collections.Counter)
    _flags: dict[int, bool] = field(default_factory=dict)

    def items(self, calls: Sequence[Call]) -> Iterator[Item]:
        """Yield what the bodies computed, in the order of the run."""
        first = next((mark_of(call.variable) for call in calls if mark_of(call.variable)), "")
        yield from self._block(self.root, calls, first, loop=None)

    def _block(self, block: Block, calls: Sequence[Call], mark: str, loop: int | None) -> Iterator[Item]:
        """loop: which loop's iterations count here, by its block's identity."""
        own = id(block) if loop == -1 else loop
        inside: list[Call] = []
        place = -1
        pending = self._operators(calls, mark, root=block is self.root)
        for number, group in pending:
            if number is None:
                inside = group
                continue
            if loop == -1 and (place == -1 or number <= place):
                self._turns[id(block)] += 1
            op = block.ops[number] if 0 <= number < len(block.ops) else None
            if op is None or op.kind != group[0].kind:
                self.problem = self.problem or f"{group[0].op_type} is not what the program has there"
                return
            if inside:
                control = number if op.blocks else self._between(block, place, number)
                yield from self._control(block, control, inside, own)
                inside = []
            place = number
            if not op.blocks:
                yield from self._values(op, group, own)
        if inside:
            yield from self._control(block, self._between(block, place, len(block.ops)), inside, own)

    @staticmethod
    def _operators(calls: Sequence[Call], mark: str, *, root: bool) -> Iterator[tuple[int | None, list[Call]]]:
        """(place, calls) of each operator of a block, and (None, calls) of what ran in the blocks inside it."""
        group: list[Call] = []
        last: int | None = None
        for call in calls:
            own = mark_of(call.variable)
            number = call.place if own == mark or (root and not own) else None
            if group and (number != last or (number is not None and _is_same_output(group, call))):
                yield last, group
                group = []
            group.append(call)
            last = number
        if group:
            yield last, group

    def _control(self, block: Block, number: int, calls: Sequence[Call], loop: int | None) -> Iterator[Item]:
        if number < 0 or not block.ops[number].blocks:
            self.problem = self.problem or "a block ran that the program has not there"
            return
        op = block.ops[number]
        mark = mark_of(calls[-1].variable)
        if op.kind == "while":
            yield from self._block(op.blocks[0], calls, mark, loop=-1)
            return
        fits = [one for one in op.blocks if _fits(one, calls, mark)]
        if len(fits) > 1:
            taken = self._flags.get(op.reads[0])
            fits = [op.blocks[0 if taken else 1]] if taken is not None else []
        if len(fits) != 1:
            self.problem = self.problem or "which branch ran does not show"
            return
        yield from self._block(fits[0], calls, mark, loop=loop)

    @staticmethod
    def _between(block: Block, first: int, end: int) -> int:
        """Return the one loop or branch between two operators; -1 where there is none or several."""
        found = [number for number in range(first + 1, end) if block.ops[number].blocks]
        return found[0] if len(found) == 1 else -1

    def _values(self, op: Op, calls: Sequence[Call], loop: int | None) -> Iterator[Item]:
        ordered = sorted(calls, key=lambda call: _number(call.variable))
        for call, number in zip(ordered, op.outputs, strict=False):
            if call.array.dtype.kind == "b" and call.array.size == 1:
                self._flags[number] = bool(call.array.reshape(-1)[0])
        if len(ordered) != len(op.names):
            return  # which of its outputs it shows is not told
        for call, name in zip(ordered, op.names, strict=True):
            if name:
                turn = "" if loop is None else f"@{self._turns[loop] - 1}"
                yield Item(name=name, full=f"{name}{turn}", call=call)


def _is_same_output(group: Sequence[Call], call: Call) -> bool:
    """Return whether a call is an operator's next turn, and not its next output."""
    return any(one.variable == call.variable for one in group)


def _number(variable: str) -> int:
    number = variable.rpartition("_")[2]
    return int(number) if number.isdigit() else -1


def _fits(block: Block, calls: Sequence[Call], mark: str) -> bool:
    own = [call for call in calls if mark_of(call.variable) == mark]
    return all(0 <= call.place < len(block.ops) and block.ops[call.place].kind == call.kind for call in own)


def group_series(items: Sequence[Item]) -> Mapping[str, list[Item]]:
    """By name, in order."""
    found: dict[str, list[Item]] = {}
    for item in items:
        found.setdefault(item.name, []).append(item)
    return found


def copy_call(op_type: str, variable: str, array: Any) -> Call:
    """Of memory that Paddle will use again."""
    return Call(op_type=op_type, variable=variable, array=np.array(array))
