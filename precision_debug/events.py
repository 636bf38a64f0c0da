"""What a journal tells: one type an event, frozen, with the names that stand in the file.

An event travels as {"event": NAME, ...its fields}. One of a name that this version does not know is passed over.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, get_args

from .codec import decode, decode_line, encode, parse_json
from .inspector import EngineLayer
from .numbers.told import Portrait, Repeats, TokenEffects, Tokens
from .reasons import Reason, ReasonOrText
from .records import (
    Explanation,
    InputInfo,
    Introduced,
    MetricChange,
    Number,
    Repeated,
    Row,
    RunSpec,
    Side,
    TensorMeta,
    TensorStats,
)
from .search.fix import Evaluation, Fix, ToKeep

__all__ = [
    "EVENTS",
    "Again",
    "Checked",
    "End",
    "EngineProgress",
    "Evaluated",
    "Event",
    "Explained",
    "Failure",
    "FixFound",
    "Inputs",
    "IntroducedErrors",
    "KeepFound",
    "Layers",
    "Leftover",
    "Note",
    "PairKept",
    "Paired",
    "Plan",
    "PortraitMade",
    "RepeatsFound",
    "RowDone",
    "SamplesFound",
    "Saved",
    "Scores",
    "Selected",
    "ShardDone",
    "SideDone",
    "SideOpened",
    "Stage",
    "Start",
    "Tensors",
    "TokenEffectsFound",
    "TokensFound",
    "Tried",
    "Trying",
    "read",
    "read_line",
    "to_plain_event",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Start:
    """A run begins."""

    event: ClassVar[str] = "start"
    spec: RunSpec
    machine: Mapping[str, str]
    started: str


@dataclass(frozen=True, kw_only=True)
class Stage:
    """What is being done, for those who wait, and where a crash was."""

    event: ClassVar[str] = "stage"
    text: Reason


@dataclass(frozen=True, kw_only=True)
class EngineProgress:
    """What the engine printed says of how far the stage is. It goes to those who wait, and into no journal."""

    event: ClassVar[str] = "heard"
    text: Reason


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How many tensors will be seen of each side."""

    event: ClassVar[str] = "plan"
    baseline: int
    target: int


@dataclass(frozen=True, kw_only=True)
class SideOpened:
    """side: "baseline" or "target"; it was run."""

    event: ClassVar[str] = "side"
    side: str
    info: Side


@dataclass(frozen=True, kw_only=True)
class Tensors:
    """The tensors of a side, in its order; a later list takes the place of an earlier one."""

    event: ClassVar[str] = "tensors"
    side: str
    tensors: tuple[TensorMeta, ...]


@dataclass(frozen=True, kw_only=True)
class Paired:
    """Which tensors are compared with each other, of those that both sides have announced so far.

    pairs: target name to (baseline name, how that was decided). The rest: see ``pairing.align.Alignment``.
    """

    event: ClassVar[str] = "paired"
    pairs: Mapping[str, tuple[str, str]]
    rivals: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, Reason] = field(default_factory=dict)
    missing: Mapping[str, Reason] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Selected:
    """The baseline's names that were asked for."""

    event: ClassVar[str] = "selected"
    names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The feeds. file: where they are stored, beside the report. given, asked: see SamplesRead."""

    event: ClassVar[str] = "inputs"
    inputs: tuple[InputInfo, ...]
    source: ReasonOrText
    file: str
    given: int = 1
    asked: int = 1


@dataclass(frozen=True, kw_only=True)
class Saved:
    """The baseline showed a tensor. stats: of one that no partner comes for."""

    event: ClassVar[str] = "saved"
    name: str
    stats: TensorStats | None


@dataclass(frozen=True, kw_only=True)
class Leftover:
    """A tensor of the baseline that no partner came for."""

    event: ClassVar[str] = "leftover"
    name: str
    stats: TensorStats | None


@dataclass(frozen=True, kw_only=True)
class RowDone:
    """A finished row."""

    event: ClassVar[str] = "row"
    row: Row


@dataclass(frozen=True, kw_only=True)
class SideDone:
    """A side has run to its end."""

    event: ClassVar[str] = "ran"
    side: str


@dataclass(frozen=True, kw_only=True)
class Again:
    """What was compared so far is void: both sides run once more, one after the other."""

    event: ClassVar[str] = "again"


@dataclass(frozen=True, kw_only=True)
class Layers:
    """Of the engine that the target ran."""

    event: ClassVar[str] = "layers"
    layers: tuple[EngineLayer, ...]


@dataclass(frozen=True, kw_only=True)
class Note:
    """What the reader of the report must know."""

    event: ClassVar[str] = "note"
    text: Reason


@dataclass(frozen=True, kw_only=True)
class Scores:
    """What the answer is worth, shares of ``samples``. metric: of these the user's own, and how it changes."""

    event: ClassVar[str] = "scores"
    scores: Mapping[str, Number]
    samples: int
    metric: MetricChange | None = None


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What a comparison of the user's own said: output name ("": all at once) to the share of samples that passed."""

    event: ClassVar[str] = "checked"
    function: str
    shares: Mapping[str, Number]
    samples: int


@dataclass(frozen=True, kw_only=True)
class RepeatsFound:
    """The target was built and run several times."""

    event: ClassVar[str] = "repeats"
    repeats: Repeats
    tensors: tuple[Repeated, ...]


@dataclass(frozen=True, kw_only=True)
class TokensFound:
    """What a language model says token by token; a later one takes the place of an earlier one."""

    event: ClassVar[str] = "tokens"
    tokens: Tokens


@dataclass(frozen=True, kw_only=True)
class TokenEffectsFound:
    """The operators that move a prediction of these tokens."""

    event: ClassVar[str] = "token_effects"
    effects: TokenEffects


@dataclass(frozen=True, kw_only=True)
class IntroducedErrors:
    """What each operator added itself."""

    event: ClassVar[str] = "introduced"
    tensors: tuple[Introduced, ...]


@dataclass(frozen=True, kw_only=True)
class Explained:
    """The operators that an output's error comes from."""

    event: ClassVar[str] = "explanation"
    explanation: Explanation


@dataclass(frozen=True, kw_only=True)
class KeepFound:
    """How the culprits are kept in higher precision."""

    event: ClassVar[str] = "to_keep"
    to_keep: ToKeep


@dataclass(frozen=True, kw_only=True)
class FixFound:
    """The answer of a search."""

    event: ClassVar[str] = "fix"
    fix: Fix


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A search has evaluated one of its sets. kept: how many operators. what: which part of the search it was."""

    event: ClassVar[str] = "tried"
    kept: int
    evaluation: Evaluation
    what: str


@dataclass(frozen=True, kw_only=True)
class Trying:
    """A search is about to run a set; see products.search, as of the next one."""

    event: ClassVar[str] = "trying"
    key: str
    mode: str
    kept: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """A set was run. check: a digest of all else; "" where nobody asks for it."""

    event: ClassVar[str] = "evaluated"
    key: str
    evaluation: Evaluation
    check: str = ""


@dataclass(frozen=True, kw_only=True)
class PortraitMade:
    """What a page draws of one tensor."""

    event: ClassVar[str] = "portrait"
    portrait: Portrait


@dataclass(frozen=True, kw_only=True)
class PairKept:
    """Both sides of a tensor are in a file of the run's folder (see observe.worst_pairs), if it is still there."""

    event: ClassVar[str] = "pair"
    name: str
    number: int


@dataclass(frozen=True, kw_only=True)
class SamplesFound:
    """Many samples are compared: those from first to before last."""

    event: ClassVar[str] = "samples"
    first: int
    last: int


@dataclass(frozen=True, kw_only=True)
class ShardDone:
    """Some of many samples, as JSON text, which is passed on unread: see observe.shard.Shard."""

    event: ClassVar[str] = "shard"
    text: str


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why the run ended early. kind: the name of our exception; text: it in one line."""

    event: ClassVar[str] = "failure"
    text: str
    kind: str
    what: ReasonOrText
    where: ReasonOrText
    hint: ReasonOrText


@dataclass(frozen=True, kw_only=True)
class End:
    """The run came to its end."""

    event: ClassVar[str] = "end"
    seconds: Number


Event = (
    Start | Stage | EngineProgress | Plan | SideOpened | Tensors | Paired | Selected | Inputs | Saved | Leftover
    | RowDone | SideDone | Again | Layers | Note | Scores | Checked | RepeatsFound | IntroducedErrors | Explained
    | KeepFound | FixFound | PortraitMade | TokensFound | TokenEffectsFound | PairKept | SamplesFound | ShardDone
    | Tried | Trying | Evaluated | Failure | End
)  # fmt: skip

_BEGIN = re.compile(rb'\{"event": "(\w+)"')

EVENTS: Mapping[str, type[Event]] = {kind.event: kind for kind in get_args(Event)}
"""Every event, by its name in a journal."""


def to_plain_event(event: Event) -> dict[str, Any]:
    """Return an event as plain values."""
    return {"event": event.event, **encode(event)}


def read_line(line: bytes, wanted: Collection[str]) -> Event | None:
    """Read a line of a journal; None for a name that is not wanted. Raises ValueError, TypeError or KeyError."""
    begin = _BEGIN.match(line)
    if begin is not None and (name := begin[1].decode()) in wanted:
        kind: Any = EVENTS.get(name)
        found: Event | None = None if kind is None else decode_line(kind, line)
        if found is not None:
            return found
    plain = parse_json(line.decode(errors="replace"))
    return read(plain) if plain["event"] in wanted else None


def read(plain: Mapping[str, Any]) -> Event | None:
    """Read an event that ``to_plain_event`` wrote; None for an unknown name. Raises ValueError, TypeError or
    KeyError."""
    kind: Any = EVENTS.get(plain["event"])
    found: Event | None = None if kind is None else decode(kind, dict(plain))
    return found
