"""The records that travel between stages: frozen, keyword-only, no behaviour beyond what follows from their fields."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .callsite import CallSite
from .reasons import NOTHING, Reason, ReasonOrText, say
from .reasons.ways import NO_WAY, Way, way
from .settings.options import ModelFiles, Number, RunSpec, Shape, Tolerance

__all__ = [
    "UNFUSED",
    "Availability",
    "Comparison",
    "Culprit",
    "Decision",
    "Doubt",
    "Effect",
    "Explanation",
    "FoundBeside",
    "Grid",
    "InputInfo",
    "InputMeta",
    "Introduced",
    "MetricChange",
    "ModelFiles",
    "Number",
    "Operator",
    "Overlap",
    "Repeated",
    "Row",
    "RunMode",
    "RunSpec",
    "SamplesRead",
    "SessionSpec",
    "Shape",
    "Side",
    "Slices",
    "Status",
    "Stored",
    "TensorMeta",
    "TensorStats",
    "Tolerance",
]  # fmt: skip

UNFUSED = way("unfused")
"""The view of a tensor that the engine computes inside a fused layer: it was seen in a further run, in which it is not
fused and which gives the same in front of it and behind it. The engine's own run has no such tensor to put another
value into, so that no explanation takes it for an operator's result."""


@dataclass(frozen=True, kw_only=True)
class RunMode:
    """A way to run a model, ``<engine>_<precision>``, that one backend offers.

    zh: the summary in Chinese. suffixes: endings of the model files it reads ("": a folder), with the dot, lower case.
    precision: what it promises to compute in, a word of ``numbers.number_types``. tried: "ENGINE OLDEST to NEWEST".
    baseline: the backend's mode that it is compared with where the user names none. simulation: it imitates arithmetic.
    concurrent: its sessions may run in a thread beside another session of this process, and a hook may block them.
    accumulates: the type in which sums inside one operator (a mean, a norm) are done; "": not known.
    builds: opening it builds an engine, which takes far longer than running it: unasked that is done once or twice.
    calibrates: opening it runs the model, unless that is quantised already, to see the range of each tensor.
    wide_parameters: the backend's mode of the same precision in which parameters stay in float32; "": none.
    """

    name: str
    summary: str
    suffixes: tuple[str, ...]
    baseline: str
    precision: str = ""
    simulation: bool = False
    concurrent: bool = False
    builds: bool = False
    calibrates: bool = False
    accumulates: str = ""
    wide_parameters: str = ""
    zh: str = ""
    tried: str = ""


@dataclass(frozen=True, kw_only=True)
class Availability:
    """Whether a run mode can run on this machine, and what it lacks.

    ``needs``: what is missing, and how to get it; "" where it can. ``slower``: why one that can takes longer than it
    has to; "" where it does not. ``partly``: which models alone it can run, and what the others need; "" where all.
    ``inexact``: what this machine's processor computes otherwise than others do; "" where nothing is known."""

    ok: bool
    needs: str = ""
    slower: str = ""
    partly: str = ""
    inexact: str = ""


@dataclass(frozen=True, kw_only=True)
class InputMeta:
    """One input of a model.

    dtype: numpy's name ("float32", "bfloat16", "str"). shape: one entry a dimension; a str names a dynamic one; None:
    rank unknown. guessed: the model says neither, so they bind nobody: an array that is given keeps its own.
    example: the sizes are those of an example, which a program of any size came with: they bind nobody either.
    rounds: what makes the model's numbers also casts what it is fed, so floats of another type are rounded to this one.
    optional: the model has a default for it. limit: its values index so many entries. layout: "NCHW", … of an image.
    codes, scale, zero_point: of an input in real numbers that the file itself holds as integers of type ``codes``, what
    those stand for: (code - zero_point) * scale. An array of that type is such integers.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...] | None
    optional: bool = False
    limit: int | None = None
    layout: str = ""
    guessed: bool = False
    example: bool = False
    rounds: bool = False
    codes: str = ""
    scale: float = 1.0
    zero_point: int = 0


Grid = tuple[float, float, int]
"""The lowest and the highest number of a quantised tensor, and how many it knows."""


@dataclass(frozen=True, kw_only=True)
class TensorMeta:
    """What a session knows of one tensor before its value exists.

    name: the session's own name for it, unique there; what the hook is called with. A tensor of a loop's body comes
    once an iteration, as "name@0", "name@1", …; before a run, its name alone is listed.
    op_type, node: type of the operator that produces it, in the words of the session's framework, and its name.
    given_by: the type of the model's operator that gives this form of what ``op_type`` computed, as QuantizeLinear.
    inputs: names (same session) of the activations that the operator reads; constants are left out.
    origin: the tensor of the *source model* that this one holds; "" means that its own name says it.
    view: how the hook's value was taken from the engine's: "" as it is, "dequantised", "unblocked", "cast", UNFUSED, …
    unseen: why the hook will not be called for it; "" where it will. absorbs: what its operator computes inside.
    rounds: of what it absorbs, or reads, the source model's tensors that are rounded to integers there, unlisted.
    grids: of those, of ``origin`` and of itself, where one holds for all of a tensor, its ends and how many numbers.
    extra: further columns of the report (fused layer, real precision, tactic), name to text.
    call: where in the model's own program it was made, where the session knows.
    own: the engine made it inside an operator of the source model, which has no such tensor.
    phase: of a training step ("forward", "backward", "optimiser"), "" elsewhere. scaled: what its loss is multiplied
    by. rank: of a step of several ranks, whose names then begin with "rank<number>/"; None elsewhere.
    """

    name: str
    op_type: str
    node: str = ""
    dtype: str = ""
    shape: tuple[int | str, ...] | None = None
    inputs: tuple[str, ...] = ()
    origin: str = ""
    view: Way = NO_WAY
    unseen: Reason = NOTHING
    is_output: bool = False
    extra: Mapping[str, str] = field(default_factory=dict)
    absorbs: tuple[str, ...] = ()
    rounds: tuple[str, ...] = ()
    grids: Mapping[str, Grid] = field(default_factory=dict)
    call: CallSite | None = None
    own: bool = False
    phase: str = ""
    scaled: float = 1.0
    rank: int | None = None
    given_by: str = ""


@dataclass(frozen=True, kw_only=True)
class MetricChange:
    """A metric of the user's on both sides, over all samples.

    less_is_better: as with an error rate. low, high: between what 95 % of the resampled samples say of how much worse
    it gets; None where there are too few to say anything.
    """

    name: str
    baseline: Number
    target: Number
    samples: int
    less_is_better: bool = False
    low: Number | None = None
    high: Number | None = None

    @property
    def worse(self) -> float:
        """How much worse the target is; below 0 where it is better, inf where it gives no number."""
        if not math.isfinite(self.baseline):
            return math.nan
        if not math.isfinite(self.target):
            return math.inf
        return float(self.target - self.baseline if self.less_is_better else self.baseline - self.target)

    @property
    def share(self) -> float:
        """The same as a share of the baseline's."""
        if self.worse <= 0 or not self.baseline:
            return math.inf if self.worse > 0 else 0.0
        return abs(self.worse / float(self.baseline))


@dataclass(frozen=True, kw_only=True)
class TensorStats:
    """One tensor by itself. min, max, mean and rms are over its finite elements, None where it has none.

    negative_inf: how many of ``inf`` are negative.
    """

    dtype: str
    shape: Shape
    elements: int
    min: Number | None = None
    max: Number | None = None
    mean: Number | None = None
    rms: Number | None = None
    nan: int = 0
    inf: int = 0
    negative_inf: int = 0


@dataclass(frozen=True, kw_only=True)
class Slices:
    """Slices ``first`` to ``last`` of the ``of`` ones along an axis of an output, taken together; axis -1: all of it.

    error: RMS of t - b there. size, spread, peak: RMS, standard deviation and largest |b| of the baseline there.
    largest: largest |b| of the whole output. lost: the target says nothing about them: see numbers.slices. step: what
    every t there is a multiple of, where that is why; 0 elsewhere.
    """

    axis: int
    first: int
    last: int
    of: int
    error: Number
    size: Number
    spread: Number
    peak: Number
    largest: Number
    lost: bool = False
    step: Number = 0.0


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Numbers of one pair of tensors; b is the baseline's element, t the target's, d = |t - b|.

    A pair of elements is *finite* where b and t both are. Errors are over the finite pairs, with one exception:
    max_abs and max_rel are inf where one side is infinite and the other is not the same infinity. Pairs with a NaN
    enter no error but are mismatched (unless the tolerance says equal_nan and both are NaN); the counts tell of them.
    In a row every error is infinite (sqnr_db: -inf) where NaN or Inf stand on one side alone: see numbers.born.
    Where the shapes differ, or a side is not numeric, the numbers that need pairs are None.
    mismatched: elements outside the tolerance (rule, atol, rtol). apart: of how many pairs, at least, one alone is NaN,
    or infinite, or of the other sign so. same_inf: pairs that hold the same infinity; not counted where a NaN is.
    first_mismatch, max_abs_index, max_rel_index: of the first element in C order.
    max_rel, mean_rel: of d / (|b| + 1e-7), the denominator of Paddle's demo.
    share_rel_over_1pct: share (0 to 1) of the finite pairs with d > 0.01 * |b|. rmse: sqrt(mean(d^2)).
    cosine_distance: 1 - cos(b, t), computed as (sum d^2 - (|b| - |t|)^2) / (2 |b| |t|), which does not cancel, or by
    the definition where one norm is over twice the other; None where a side is 0 everywhere.
    sqnr_db: 10 log10(sum b^2 / sum d^2); inf where d is 0 everywhere. abs_p50, …: quantiles of d, exact below 65,536
    elements; then quantiles_exact is False, and they come from a log2 histogram of 8 buckets an octave over a part of
    the elements: within 12.5 % of that part's quantile.
    stat: the statistic that check_error_stat asks for, of d and of d / |b|; None where it is "elemwise".
    required_atol, required_rtol: the smallest with which every element would pass, the other one kept; inf: none would.
    fp16_overflow, fp16_subnormal: baseline elements with |b| > 65504, and with 0 < |b| < 2^-14.
    left: rmse and sqnr_db of the finite pairs, in a row whose errors are infinite; () elsewhere.
    identical: equal bit for bit, with at least one element. more: what metrics.h declares and has no field here.
    slices: of a final output, those that are lost, and then the worst others.
    """

    base: TensorStats
    target: TensorStats
    shapes_match: bool
    mismatched: int | None = None
    apart: int = 0
    same_inf: int = 0
    first_mismatch: Shape | None = None
    max_abs: Number | None = None
    max_abs_index: Shape | None = None
    max_rel: Number | None = None
    max_rel_index: Shape | None = None
    mean_abs: Number | None = None
    mean_rel: Number | None = None
    share_rel_over_1pct: Number | None = None
    rmse: Number | None = None
    cosine_distance: Number | None = None
    sqnr_db: Number | None = None
    abs_p50: Number | None = None
    abs_p90: Number | None = None
    abs_p99: Number | None = None
    abs_p999: Number | None = None
    quantiles_exact: bool = True
    stat_abs: Number | None = None
    stat_rel: Number | None = None
    required_atol: Number | None = None
    required_rtol: Number | None = None
    fp16_overflow: int = 0
    fp16_subnormal: int = 0
    left: tuple[Number | None, ...] = ()
    identical: bool = False
    more: Mapping[str, float] = field(default_factory=dict)
    slices: tuple[Slices, ...] = ()

    @property
    def lost(self) -> tuple[Slices, ...]:
        """The slices that are lost."""
        return tuple(one for one in self.slices if one.lost)

    @property
    def relative_l2(self) -> float | None:
        """sqrt(sum d^2 / sum b^2), from sqnr_db; None where it is not defined."""
        if self.sqnr_db is None:
            return None
        return math.inf if self.sqnr_db < -6165 else float(10 ** (-self.sqnr_db / 20))  # 10 ** 308.25: float64's end


class Status(str, enum.Enum):
    """What became of one tensor."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"  # compared, and nothing is out of tolerance, but the tolerance could not have told
    FUSED_AWAY = "fused away"  # the baseline has it, the target's graph no longer does
    UNMATCHED = "unmatched"  # the target has it, nothing in the baseline could be paired with it
    NOT_COMPARED = "not compared"  # both may have it, but it could not be seen or compared; ``reason`` says why

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, kw_only=True)
class Introduced:
    """What one operator (or fused region) added itself: both sides computed it from the same inputs.

    name: the baseline's tensor that it makes. method: "isolated" (the target's arithmetic on the baseline's inputs) or
    "replayed" (the baseline's operator on the target's inputs). Rounding an input belongs to whoever made that input.
    rel_l2: L2 of the error over L2 of the exact result, over elements that are finite on both sides and within the
    target's type; None where nothing is left or the tensor holds no floats. unit: the largest relative error of
    rounding once to the target's type (2^-11 for float16; half a step over RMS for integers). units: rel_l2 / the
    larger of ``unit`` and the model's typical one. born_nan, born_inf: elements that are so in the target alone.
    flips: elements that differ, of integers, booleans or text. inherited: relative L2 of what the baseline's operator
    makes of the target's inputs, against what it makes of its own; None where it was not measured.
    """

    name: str
    method: str
    elements: int
    rel_l2: Number | None = None
    max_abs: Number | None = None
    unit: Number = 0.0
    units: Number | None = None
    born_nan: int = 0
    born_inf: int = 0
    flips: int | None = None
    inherited: float | None = None

    @property
    def size(self) -> float | None:
        """How large the error is: its relative L2, or the share of elements that differ where they are no floats."""
        if self.rel_l2 is not None:
            return float(self.rel_l2)
        return None if self.flips is None else self.flips / max(self.elements, 1)


@dataclass(frozen=True, kw_only=True)
class Repeated:
    """How far one tensor (name: the baseline's) differs between several builds of the target.

    rel_l2, max_abs: the largest distance of a build from the first one; inf where NaN, Inf or the shape differ. times:
    how many of the further builds differ. first: nothing that it was made of differs: it begins here."""

    name: str
    rel_l2: Number = 0.0
    max_abs: Number = 0.0
    times: int = 0
    first: bool = False


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A constant that a file holds as integers: ``(integers - zero_point) * scale``, numpy arrays that broadcast.

    made_of: the constants of the file that it comes of, by name, where they are the file's own. read_on: the scale that
    its operator reads it on, whatever its own is, which may be written nowhere (None): of a bias that of input times
    weight."""

    integers: Any
    scale: Any
    zero_point: Any
    read_on: Any = None
    made_of: Mapping[str, Any] = field(default_factory=dict)

    @property
    def used(self) -> Any:
        """The scale that it is read on."""
        return self.scale if self.read_on is None else self.read_on


@dataclass(frozen=True, kw_only=True)
class Operator:
    """An operator as its graph has it.

    attributes: as plain values; and the constants that it reads, by name, in the order of its inputs, as numpy arrays.
    stored: those of them that the file holds as integers; narrowed: the type of those that it stores as narrower floats
    and casts where they are read, by name. reads: the tensors that it reads besides, and inputs: all that it reads in
    their order, where a file says so. scales: scale and zero point of those of its tensors that are integers, or become
    them, by name, where the file has them. inside: the first tensor of who has it in a body, or "".
    defaults: what attributes are where nothing is said, where that is known."""

    op_type: str
    attributes: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    stored: Mapping[str, Stored] = field(default_factory=dict)
    narrowed: Mapping[str, str] = field(default_factory=dict)
    reads: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    scales: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    inside: str = ""
    defaults: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Effect:
    """One operator's introduced error alone, carried through the baseline.

    share: of the squared error that it explains at ``at``, or of the NaN and Inf that it makes there. All of them are
    an error budget. rel_l2: of that tensor against the baseline's, None where it is not finite. non_finite: there.
    """

    at: str
    share: Number
    rel_l2: Number | None = None
    non_finite: int = 0


@dataclass(frozen=True, kw_only=True)
class KeptAlone:
    """What is left of an error with one operator in higher precision, as the target itself ran it: no replay.

    mode: its run mode. before, left: relative L2 at the culprit's ``at`` with nothing kept, and with the operator
    alone. with_readers: with the ``readers`` operators kept too that read what it makes; None: not run."""

    mode: str
    before: Number
    left: Number
    with_readers: Number | None = None
    readers: int = 0

    @property
    def is_worse(self) -> bool:
        """Whether its error takes away some of the others'."""
        return self.left > self.before

    @property
    def gone(self) -> float:
        """Part of the squared error that goes with the operator alone; below 0 where the error grows."""
        return _part_gone(self.left, self.before)

    @property
    def gone_with_readers(self) -> float:
        """The same with what reads it; 0 where that was not run."""
        return _part_gone(self.before if self.with_readers is None else self.with_readers, self.before)


def _part_gone(left: float, before: float) -> float:
    return 1 - (left / before) ** 2 if before else 0.0


@dataclass(frozen=True, kw_only=True)
class FoundBeside:
    """What a run of the target, in ``mode``, leaves with operators kept in higher precision beside whose error another
    was not seen: of the error before, and then with that one kept, too."""

    kept: tuple[str, ...]
    mode: str
    before: Number
    left: Number
    then: Number


@dataclass(frozen=True, kw_only=True)
class Culprit:
    """An operator that an output's error comes from.

    name, node, op_types: the tensor, and the operators of the region that made it, in execution order. cause: a code
    (see explain.causes); evidence: its numbers and names, plain values, by argument name. confidence: "isolated",
    "replayed", "simulated", "substituted" (see explain.broken_outputs) or "ranked": how its error was measured. share:
    of the squared error at ``at`` that its own error explains; of all that are lost to one outlier channel, where the
    evidence has "too"; of the NaN and Inf there, where its error alone makes ``non_finite`` of them. without: relative
    L2 that is left there where all errors but those of the tensors ``left_out`` are put into the baseline's run, and
    with_all with those too; None: not measured. repaired: what is left there when its own error alone is left out, and
    others_repaired when those of all others are: each as a replay gave it, neither scaled nor capped. kept_alone: what
    the target itself leaves with it in higher precision, from which ``share`` comes then; None: not run. beside: of one
    who was found with others kept, who those are; then every other number is of a run with these kept; None: of the run
    itself. amplifier: the
    tensor whose operator made ordinary rounding large, "" where the introduced error is large by itself. fails_first:
    the first tensor out of bounds because of it. keep: what to keep in higher precision, this one among them. inside:
    of a stretch between tensors that both sides show, what its operators make, this one last; inner: the one whose
    rounding to the target's type makes most of the stretch's error in the baseline's run, inner_part that error over
    the stretch's; "" and None: none makes half, or not measured. ranks: of a step of several ranks, those whose
    gradients it spoils; errors: relative L2 of the output at ``at`` on each rank, by its number, inf where it is NaN or
    Inf. Both empty where there is one.
    """

    name: str
    node: str
    op_types: tuple[str, ...]
    cause: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    confidence: str = "ranked"
    introduced: Number | None = None
    units: Number | None = None
    share: Number | None = None
    non_finite: int = 0
    without: Number | None = None
    with_all: Number | None = None
    repaired: Number | None = None
    others_repaired: Number | None = None
    kept_alone: KeptAlone | None = None
    beside: FoundBeside | None = None
    left_out: tuple[str, ...] = ()
    at: str = ""
    amplifier: str = ""
    fails_first: str = ""
    keep: tuple[str, ...] = ()
    inside: tuple[str, ...] = ()
    inner: str = ""
    inner_part: Number | None = None
    ranks: tuple[int, ...] = ()
    errors: Mapping[str, Number] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Errors that do not add up: an operator's alone does what all do together, and without it the others do too.

    name: of its tensor. alone, without: relative L2 that its error makes, and that is left without it of ``whole``,
    what all of them make in the baseline's run; each as a run gave it. fewest: how many operators, those that make most
    first, are left out for half of the error, of ``tried``; None: that takes all. kept: operators kept on the engine,
    all suspects among them, where ``without`` was measured so, and ``alone`` is None."""

    name: str
    alone: Number | None
    without: Number
    whole: Number | None = None
    fewest: int | None = None
    tried: int = 0
    kept: int = 0


@dataclass(frozen=True, kw_only=True)
class RepairedSet:
    """Operators whose errors were left out together.

    names: of their tensors, those that make most alone first. left: relative L2 without them, of ``whole`` with them,
    as the baseline's runs gave both."""

    names: tuple[str, ...]
    left: Number
    whole: Number


@dataclass(frozen=True, kw_only=True)
class Decision:
    """An operator that decides by floats, and took some decisions otherwise in the target than in the baseline.

    A maximum, a top-k, a threshold or a rounding to whole numbers decides so; outputs are off by it that are right but
    for these decisions.

    name: of its tensor. count: decisions that turned, of ``elements``. margin: how far the baseline's scores are apart
    there at most; off: how far the target's are off there at most; None: not told. predicted: how many turn where every
    tensor is off by its rounding. reach: how far scores may be apart that rounding turns. expected: no more turned, and
    no clearer ones, than rounding explains. effect: relative L2 that they alone make ``at`` this output, or the part of
    its elements that they change where it holds no floats. rest: relative L2 that is left there where the baseline
    takes the target's decisions, all of them; None: no floats, or not measured. A count of 0: a top-k that asks for no
    order chose the same ones, in another."""

    name: str
    op_type: str
    count: int
    elements: int
    margin: Number | None = None
    off: Number | None = None
    predicted: Number = 0.0
    reach: Number = 0.0
    expected: bool = False
    at: str = ""
    effect: Number = 0.0
    rest: Number | None = None


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """The operators that an output's error comes from, and the numbers that say so.

    state: "culprits", "diffuse" (errors beyond bounds that no operator alone explains), "healthy" (none beyond what the
    arithmetic must lose) or "unknown" (could not be measured; ``reason`` says why).

    budget: tensor to the share of the squared error that its operator explains at ``at``, for those that were tried.
    expected, actual: relative L2 at ``at`` that rounding everywhere predicts, and that was measured. unit: the model's
    typical relative error of rounding once. allowed: relative L2 up to which a tensor's error is as expected;
    allowed_at: of outputs that have a bound of their own, as a training step's gradients, and where narrow types feed
    some outputs and not others. candidates: operators whose error could be carried to the outputs; tried: those of
    which it was, alone. rest: the share of the squared error that all the others make together; None where there is
    none, or that was not measured. part: the most that one of the parts makes into which the others were halved; None
    where they were not. overlap: of a diffuse error, why no operator is named although one of them alone makes as much.
    repaired_sets: of an error that no operator alone explains, the sets of a few that were left out; where it is
    diffuse none of them halves it. passes: what the culprits make is worth no failed run. unfelt: the first tensor
    beyond bounds where no output is. of_step: of a training step. decided_by_rounding: outputs of a step whose error
    says nothing, since their exact value is 0, or the sign of such a one. rounded: tensors of whole numbers that are
    floats, rounded, and are judged as these. decisions: that were taken otherwise, by which outputs are off; then
    ``at`` is one of the scores that they are taken by. turned: tensors that differ by these alone, which are as
    expected. steps: of outputs that hold probabilities in whole steps and agree within half a step, that step.
    """

    state: str
    method: str = ""
    reason: Reason = NOTHING
    culprits: tuple[Culprit, ...] = ()
    at: str = ""
    budget: Mapping[str, Number] = field(default_factory=dict)
    expected: Number | None = None
    actual: Number | None = None
    unit: Number = 0.0
    allowed: Number | None = None
    allowed_at: Mapping[str, Number] = field(default_factory=dict)
    first_non_finite: str = ""
    candidates: int = 0
    tried: int = 0
    rest: Number | None = None
    part: Number | None = None
    overlap: Overlap | None = None
    repaired_sets: tuple[RepairedSet, ...] = ()
    passes: bool = False
    unfelt: str = ""
    of_step: bool = False
    decided_by_rounding: tuple[str, ...] = ()
    rounded: tuple[str, ...] = ()
    decisions: tuple[Decision, ...] = ()
    turned: tuple[str, ...] = ()
    steps: Mapping[str, Number] = field(default_factory=dict)
    seconds: Number = 0.0


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table.

    index: place in the table, from 0, in the order in which the baseline produced the tensors.
    op_type, name, node: the baseline's; the target's own where the baseline has no such tensor.
    paired_by: "exact", "rename map", "graph metadata", "fingerprint", ...; "" where there is no partner. view: how the
    target's value was taken (see TensorMeta.view).
    comparison: present where status is PASS, INCONCLUSIVE or FAIL (shapes that differ fail); without one a row fails
    only where every NaN and Inf does (RunSpec.validate).
    base, target: a side by itself where there is no comparison. error_growth: relative L2 error of this tensor over the
    largest one among its operator's inputs; above 1 the operator lost precision itself, about 1 it passes on what it
    was given; inf where its inputs had no error.
    introduced: what the operator added itself, where it was run alone. repeated: how far several builds are apart.
    """

    index: int
    op_type: str
    name: str
    status: Status
    reason: Reason = NOTHING
    node: str = ""
    target_name: str = ""
    target_op_type: str = ""
    paired_by: Way = NO_WAY
    view: Way = NO_WAY
    is_output: bool = False
    comparison: Comparison | None = None
    base: TensorStats | None = None
    target: TensorStats | None = None
    error_growth: Number | None = None
    introduced: Introduced | None = None
    repeated: Repeated | None = None
    inputs: tuple[str, ...] = ()
    extra: Mapping[str, str] = field(default_factory=dict)

    def replace(self, **fields: Any) -> Row:
        """Return a copy with other values in some fields, as ``dataclasses.replace`` does, in a tenth of its time."""
        if unknown := fields.keys() - self.__dataclass_fields__.keys():
            raise TypeError(f"a row has no {', '.join(sorted(unknown))}")
        copy = object.__new__(Row)
        copy.__dict__.update(self.__dict__, **fields)
        return copy

    @property
    def shape_text(self) -> str:
        """Paddle's Shape column: "match, [..]" or "expect [..], but got [..]"."""
        if self.comparison is not None:
            base, target = list(self.comparison.base.shape), list(self.comparison.target.shape)
            return f"match, {base}" if self.comparison.shapes_match else f"expect {base}, but got {target}"
        side = self.base or self.target
        return f"{list(side.shape)}" if side is not None else ""

    @property
    def non_finite(self) -> Reason:
        """Count NaN and Inf of each side: "12 NaN in the target", …; "" where every element that was seen is finite."""
        base = self.comparison.base if self.comparison is not None else self.base
        target = self.comparison.target if self.comparison is not None else self.target
        found = []
        for stats, of_base in ((base, True), (target, False)):
            for what, count in (("NaN", stats.nan), ("Inf", stats.inf)) if stats is not None else ():
                if count and of_base:
                    found.append(say("count_in_baseline", count=count, what=what))
                elif count:
                    found.append(say("count_in_target", count=count, what=what))
        return say("non_finite", found=found) if len(found) > 1 else found[0] if found else NOTHING

    @property
    def relative_l2(self) -> float | None:
        """See Comparison; None where nothing was compared."""
        return self.comparison.relative_l2 if self.comparison is not None else None

@dataclass(frozen=True, kw_only=True)
class Doubt:
    """Why a claim is open or wrong: a code with its arguments, which ``report.doubts`` words."""

    code: str
    values: Mapping[str, ReasonOrText | Number | tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class FileState:
    """A file as it was found. time: of its last change, in ns."""

    path: str
    size: int
    time: int


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of the two runs that are compared.

    versions: framework and device to version. notes: what the session wants to be said, and doubts: what did not run as
    it was asked for. precision: what was promised (see RunMode); "": not told. outputs: the final outputs as the
    model's own file, or its run, declares them; (): nothing is known of them. digest: of the model's files as they were
    when it was opened, of a recording when it was made; "": not known, or not made yet of ``files``, which are read
    whole only where the report is stored. stored: of a side that only replays, how it was held against the model that
    it is of: "same", "changed", "unknown"; else ""."""

    mode: str
    backend: str
    model: str
    precision: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[Reason, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    simulation: bool = False
    tensors: int = 0
    seconds: Number | None = None
    outputs: tuple[str, ...] = ()
    files: tuple[FileState, ...] = ()
    digest: str = ""
    stored: str = ""


@dataclass(frozen=True, kw_only=True)
class SamplesRead:
    """Sample sets of a run: how many were given, how many of them are to be compared, and how many were."""

    given: int = 1
    asked: int = 1
    read: int = 1


@dataclass(frozen=True, kw_only=True)
class InputInfo:
    """One feed as it was given to both sides. sha256 is of its bytes in C order."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    sha256: str
    min: Number | None = None
    max: Number | None = None


@dataclass(frozen=True, kw_only=True)
class SessionSpec:
    """What a backend needs to open one model in one run mode.

    options: the backend's own settings in their declared types (see ``settings``), and what the core tells a session.
    work_dir: an existing folder for what the backend writes; removed with the run.
    cores: of the processor, for this run's share of them while another one runs beside it; 0: all.
    """

    model: ModelFiles
    mode: str
    options: Mapping[str, Any] = field(default_factory=dict)
    work_dir: str = ""
    cores: int = 0
