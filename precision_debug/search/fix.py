"""What is asked of a search, and what came of sets that were run: of a search the kept set, its trade and what is
handed over; of a comparison's fix the text to paste and what it brought."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import UsageError
from ..protocols import Executed
from ..reasons import NOTHING, Reason, say

__all__ = [
    "ENGINE_OPTION", "STATES", "TOKENS_KL", "UNCOMPILED", "Artefact", "Evaluation", "Fix", "KeptUnit", "SearchRequest",
    "ToKeep", "TradePoint", "limit_of",
]  # fmt: skip

TOKENS_KL = "kl"
"""What is judged of a language model: KL of its predictions, the mean of all places."""


@dataclass(frozen=True, kw_only=True)
class SearchRequest:
    """What a search for operators to keep is to reach, and what it may cost.

    on: "outputs", "all", "kl" (of a language model's predictions), or "FILE.py:function", a metric. limit: largest
    error ("0.02"), or a share of the error with nothing kept ("50%"); "": the comparison's own tolerance decides.

    score: ``on`` is a metric(outputs, labels) of which more is better, with the baseline's outputs for labels; limit is
    then the least that its mean over the samples may be, up to 1.

    drop: how much worse ``on``, a metric(outputs, labels), may get on average, as ``--metric_drop`` has it; then
    neither limit nor score is asked for.

    check: a command whose exit status decides, with {model} for the saved model's path (run.criterion).

    runs, seconds: at most so many sets, and about so long; 0: no end. held_out: inputs that the search does not see.
    folder: for the journal of evaluations. artefacts: the folder of what is handed over. save: of that, settings that
    name where one file goes instead ("save_model" to a path).
    """

    on: str = "outputs"
    limit: str = ""
    score: bool = False
    drop: str = ""
    check: str = ""
    runs: int = 200
    seconds: float = 0.0
    held_out: str = ""
    folder: str = ""
    artefacts: str = ""
    save: Mapping[str, str] = field(default_factory=dict)


def limit_of(text: str) -> tuple[float | None, float | None]:
    """Return an absolute limit and a share, one of them None. Raises UsageError."""
    if not text:
        return None, None
    try:
        number = float(text.removesuffix("%"))
    except ValueError:
        number = -1.0
    if not 0 < number < float("inf"):
        raise UsageError(say("no_limit", value=text), where="--limit", hint=say("limit_form"))
    return (None, number / 100) if text.endswith("%") else (number, None)


STATES = ("not needed", "found", "diffuse", "not possible", "unfinished")
"""not needed: nothing kept, it passes. found: verified on the engine, and on held-out inputs where there are some.
diffuse: no small set holds on other inputs; the curve is the answer. not possible: it fails with everything kept.
unfinished: the runs or the time were used up before any set held."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """One run of the target with one set of operators kept.

    kept: keys of units (see units.Unit). mode: the run mode, the simulation's or the target's own.
    error: relative L2 of the worst judged output over all samples, or the metric's; None: NaN, Inf, or it did not run.
    errors, held: the same, and whether it passes, by sample. outputs: by sample the relative L2 error of the worst
    whole output, where the error is that of slices that were lost; () elsewhere. text: the first mismatch, or why it
    did not run. seconds: of opening and running.
    milliseconds, bytes: of a run, and of the engine. obeyed: what the engine says of the kept layers. executed: in
    which precision the operators ran; None: nobody can tell. slower: times as long as a run with nothing kept, the two
    by turns; None: not timed.
    """

    kept: tuple[str, ...]
    mode: str
    passes: bool
    error: float | None = None
    errors: tuple[float | None, ...] = ()
    held: tuple[bool, ...] = ()
    outputs: tuple[float | None, ...] = ()
    text: str = ""
    seconds: float = 0.0
    milliseconds: float | None = None
    bytes: int | None = None
    obeyed: tuple[str, ...] = ()
    executed: Executed | None = None
    slower: float | None = None

    @property
    def told(self) -> Evaluation:
        """What a journal's readers need of it."""
        return replace(self, kept=(), executed=self.executed and self.executed.counts)

    @property
    def size(self) -> float:
        """The error as a number that can be ordered: inf where it is not finite, or nothing ran."""
        return math.inf if self.error is None else self.error

    @property
    def sizes(self) -> tuple[float, ...]:
        """The same by sample; of a set that did not run one, which is inf."""
        return tuple(math.inf if error is None else error for error in self.errors or (self.error,))

    @property
    def judged(self) -> tuple[float, ...]:
        """The same of what a bound of whole outputs is held against."""
        return tuple(math.inf if error is None else error for error in self.outputs) or self.sizes


@dataclass(frozen=True, kw_only=True)
class KeptUnit:
    """One unit that is kept in higher precision.

    An operator with the movers behind it, or all of a type or module where the engine keeps only those. nodes: their
    names. certain: NaN or Inf are born there. share: of the squared error that it explains."""

    key: str
    op_types: tuple[str, ...]
    nodes: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()
    certain: bool = False
    share: float | None = None


@dataclass(frozen=True, kw_only=True)
class TradePoint:
    """One kept set against what it costs. what: "all low", "answer", "best trade", "all high" or "curve".

    held_out: of the held-out samples, how many hold. milliseconds: median of a run. bytes: of the model or engine.
    """

    what: str
    kept: int
    error: float | None
    passes: bool
    held_out: int | None = None
    milliseconds: float | None = None
    bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Artefact:
    """Something to take away. kind: "model", "setting", "config", "command" or "wrapper".

    title: what it is. path: a file; text: to paste. verified: it was loaded and run again as a user would, and holds;
    None: it cannot be run here, and ``note`` says why. error: relative L2 then.
    """

    kind: str
    title: str
    path: str = ""
    text: str = ""
    verified: bool | None = None
    error: float | None = None
    milliseconds: float | None = None
    bytes: int | None = None
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Fix:
    """The answer of a search. state: see STATES.

    kept: the smallest set that was found. units: how many could be kept. builds: how often the target was opened or
    built for all of that, the comparison too. evaluations: sets that were run, in ``simulation`` and on the engine
    together; on_engine: of those, on the engine itself. again: how many of them came from an earlier, unfinished
    search.
    before, after: the target's error with nothing and with the answer kept, in slices of those that were lost beside
    their own size. limit: what ``passes`` means, in words.
    minimal: see strategy.Found. samples: that the search learnt from. held_out, held: samples that
    it did not, and how many of them hold.
    obeyed: what the engine says of the kept layers, one line each. was, still: in which precision the operators ran
    with nothing and with the answer kept; None: nobody can tell. whole: the error with everything kept, whole_passes
    whether that holds, whole_still in which precision it ran, where that was run. best, best_error, best_option:
    where no set was found, the one that gives most for what it keeps, what it leaves, and what keeps it; it is handed
    over then.
    """

    state: str
    kept: tuple[KeptUnit, ...] = ()
    units: int = 0
    unit: str = "operator"
    evaluations: int = 0
    on_engine: int = 0
    again: int = 0
    rankings: int = 0
    builds: int = 0
    simulation: str = ""
    before: float | None = None
    after: float | None = None
    slices: bool = False
    limit: Reason = NOTHING
    minimal: bool = False
    samples: int = 0
    held_out: int = 0
    held: int = 0
    trade: tuple[TradePoint, ...] = ()
    artefacts: tuple[Artefact, ...] = ()
    obeyed: tuple[str, ...] = ()
    was: Executed | None = None
    still: Executed | None = None
    whole: float | None = None
    whole_passes: bool = False
    whole_still: Executed | None = None
    best: tuple[KeptUnit, ...] = ()
    best_error: float | None = None
    best_option: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[Reason, ...] = ()
    seconds: float = 0.0


# What a comparison's report gives to paste, so that what lost the precision stays in a higher one.

ENGINE_OPTION, UNCOMPILED = "engine option", "uncompiled module"
"""``ToKeep.unit`` of what makes an engine compute as its baseline does: all of it, or modules that it leaves out."""


@dataclass(frozen=True, kw_only=True)
class ToKeep:
    """What keeps the culprits in higher precision in the run mode at hand, as a user types it, and what that brings.

    option: the words to add to the command; "" where the mode has no such setting, or nothing that was tried brought
    anything. settings: the same as values, by name. replaced: names of settings that the command has already, and that
    it takes the place of. unit: "operator", "operator type" or "module"; of what makes an engine compute as its
    baseline does "engine option" or "uncompiled module". keys: those that it keeps, ``of`` how many there are.
    switched: what is set for the whole engine beside (see protocols.is_switch). text: the same as lines for a program
    of the user's, "" where there are none. modes: where there is no such setting, run modes of the same backend and
    precision that have one; why: what the backend says, or why nothing was run. beside: what else was run and helps,
    and may be pasted in its place.
    state: what came of running the target with something kept, one of
        "mended"     every output is as expected of the mode, or within the tolerance
        "lessened"   the error is less than half of what it was, and still above that
        "none"       nothing that was run did so and left something in the low precision
        "not tried"  nothing was run
        ""           there was nothing to try
    before, after: relative L2 error of the worst output, None where it is NaN, Inf or not known; after, in "none": the
    least that was seen. slices: all of these are the largest error of outputs and of slices that were lost with nothing
    kept, beside their own size; outputs: relative L2 error of the worst whole output, then. allowed: the error up to
    which it is as expected. was, still: in which precision the operators ran with nothing kept, and with these; None:
    the engine does not tell. runs: sets that were run.
    others: further inputs that it was run on; others_before, others_after: the worst error there.
    whole: in "none", the error with everything kept that can be, whole_still: in which precision that ran; None where
    that was not run. each: in "none", whether each unit was left in the low precision by itself, and none could be:
    nothing but everything helps then. trade: of a fix that gives up most of the low precision, smaller sets that were
    run, each with the least error of its size and those below. slower: a run with these kept takes so many times as
    long as with nothing kept, both by turns on this machine. None: not timed.
    stopped: seconds after which no further set was run, where that ended it. exact: error of the worst output against
    the same model in float64, of the baseline, of the target, and of the target with these kept; () not measured.
    pasted: whether the command with the option passes, where the bound of what is left depends on whose it is, or on
    the tensors inside: then it was compared so. None: it was not. blamed: whom that comparison names, or which tensor
    is out of the tolerance that was given; bound: up to which its outputs are as expected there. in_vain: of all the
    culprits kept, where that did nothing. metric: the user's, what it loses being the error of all these; "" another.
    off: what switches a faulty pass of the engine off, beside which all of this was run; it is part of the option.
    caution: what to mind where the option goes to another tool than this one, or of what it stands for.
    """

    option: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    replaced: tuple[str, ...] = ()
    unit: str = "operator"
    keys: tuple[str, ...] = ()
    switched: tuple[str, ...] = ()
    of: int = 0
    modes: tuple[str, ...] = ()
    why: Reason = NOTHING
    text: str = ""
    beside: tuple[ToKeep, ...] = ()
    state: str = ""
    before: float | None = None
    after: float | None = None
    slices: bool = False
    outputs: float | None = None
    allowed: float | None = None
    was: Executed | None = None
    still: Executed | None = None
    runs: int = 0
    others: int = 0
    others_before: float | None = None
    others_after: float | None = None
    whole: float | None = None
    whole_still: Executed | None = None
    whole_ran: bool = False
    each: bool = False
    slower: float | None = None
    trade: tuple[TradePoint, ...] = ()
    stopped: float | None = None
    exact: tuple[float, ...] = ()
    pasted: bool | None = None
    blamed: str = ""
    bound: float | None = None
    in_vain: TradePoint | None = None
    metric: str = ""
    off: str = ""
    caution: Reason = NOTHING

    @property
    def judged(self) -> float | None:
        """What a bound of whole outputs is held against."""
        return self.outputs if self.slices else self.after

    @property
    def tried(self) -> ToKeep | None:
        """Return this record where something came of trying it, as programs read it that were written for 0.3."""
        return self if self.state else None
