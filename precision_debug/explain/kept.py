"""What to keep in higher precision with a culprit, so that what it gives gets to where it fits."""

from __future__ import annotations

from collections.abc import Sequence

from ..numbers.born import finite_l2
from ..reasons.causes import CAUSES
from .introduced import MASK
from .operators import BODIES, MOVE, SELECT, plain_type
from .subject import Subject
from .units import largest_of, smallest_of

__all__ = ["kept_through"]

_MOST = 64
"""Tensors that the search for what to keep goes through; a bound on its work, not measured."""

_CARRIED = 4
"""Tensors between an author and its amplifier up to which each is named."""

_GROWN = 4.0
"""Times that an error grows in one operator from which on what it was given is kept too."""

_REGION = 8
"""Operators of a fused region up to which each is named."""


def kept_through(subject: Subject, keep: Sequence[str], cause: str, amplifier: str) -> tuple[str, ...]:
    """The tensors with what is fused into them and what lies between an author and its amplifier, and behind them each
    that only moves their numbers or is beyond the type as they are, or chooses among them for another amplifier.

    What reads the last of them is kept as well by whoever follows the advice: it is what brings the numbers back.
    """
    between = _between(subject, keep[0], amplifier) if amplifier else []
    whole = (keep[0], *between, *keep[1:])
    where = CAUSES[cause].out_of_range
    found = dict.fromkeys(part for name in whole for part in (*_fused(subject, name), name))
    waiting = list(keep)
    while waiting and len(found) < _MOST:
        for reader in subject.readers.get(waiting.pop(0), ()):
            beyond = (where == "above" and _beyond(subject, reader)) or (where == "below" and _below(subject, reader))
            again = amplifier and reader != amplifier and _chooses(subject, reader) and _grows(subject, reader)
            if reader not in found and (beyond or again or subject.only_moves(reader)):
                found[reader] = None
                waiting.append(reader)
    return tuple(found)


def _between(subject: Subject, author: str, amplifier: str) -> list[str]:
    """What carries an author's numbers to the amplifier, in order: rounded there, they would be as coarse again."""
    carry = (subject.descendants(author) - {amplifier}) & subject.ancestors(amplifier)
    return sorted(carry, key=lambda name: subject.order.get(name, 0)) if len(carry) <= _CARRIED else []


def _fused(subject: Subject, name: str) -> list[str]:
    """The operators of a region that was seen as one, in order, where they are few: none of them has a tensor of its
    own in the target, and each has a name that can be given."""
    inside = [meta.name for meta in subject.region_of.get(name, ()) if plain_type(meta.op_type) not in MOVE]
    return inside if len(inside) <= _REGION else []


def _chooses(subject: Subject, name: str) -> bool:
    """Whether a tensor's operators leave numbers as they are, whichever they choose."""
    types = {plain_type(meta.op_type) for meta in subject.region_of.get(name, ())}
    return bool(types) and types <= SELECT | MOVE | BODIES


def _grows(subject: Subject, name: str) -> bool:
    """Whether what reads a tensor, or what is chosen of it, makes its error much larger."""
    seen, waiting = {name}, [name]
    while waiting:
        current = waiting.pop()
        error = finite_l2(subject.row_of[current]) or 0.0
        for reader in subject.readers.get(current, ()):
            if error and (finite_l2(subject.row_of[reader]) or 0.0) > _GROWN * error:
                return True
            if reader not in seen and _chooses(subject, reader):
                seen.add(reader)
                waiting.append(reader)
    return False


def _beyond(subject: Subject, name: str) -> bool:
    """Whether the baseline's numbers are beyond the target's type; masks are not."""
    numbers = subject.row_of[name].comparison
    if numbers is None or numbers.base.min is None or numbers.base.max is None:
        return False
    return largest_of(subject.narrow_type) < max(abs(numbers.base.min), abs(numbers.base.max)) < MASK


def _below(subject: Subject, name: str) -> bool:
    """Whether most of the baseline's numbers are below the target's normal ones, where each loses digits."""
    numbers = subject.row_of[name].comparison
    return numbers is not None and 0 < (numbers.base.rms or 0.0) < smallest_of(subject.narrow_type) * 2**10
