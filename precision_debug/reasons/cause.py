"""What is known of one cause of an error: its words, its evidence, and what follows from it."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from .reason import Wording, arguments_of

__all__ = ["MEASURED", "OF_PARTS", "PARTS", "SEEN", "THINGS", "Cause", "Kind"]


class Kind(enum.Enum):
    """What a piece of evidence is: this decides how it is shown, whatever it is called."""

    FIGURE = "a number, shown with a few digits"
    COUNT = "a whole number"
    SHARE = "a part of 1, shown in percent"
    TEXT = "a name, or a text that is the same in every language"
    WORD = "a kind of thing, which has a name in both languages"
    ANY = "a value of the model's own, shown by its type"

    def takes(self, value: object) -> bool:
        """Return whether a value is of this kind; None, where it could not be measured, is of every kind but a text."""
        if self is Kind.ANY:
            return True
        if self in (Kind.TEXT, Kind.WORD):
            return isinstance(value, str)
        whole = isinstance(value, int) and not isinstance(value, bool)
        return value is None or whole or (self is not Kind.COUNT and isinstance(value, float))


MEASURED: Mapping[str, Kind] = {"left": Kind.SHARE}
"""Evidence of every cause with an experiment: the part of the operator's own error that is left when it is undone."""


@dataclass(frozen=True, kw_only=True)
class Cause:
    """One cause of an error.

    Explanation, search and report ask here and nowhere else: a new cause is one entry of ``causes.CAUSES``.

    en, zh: in a few words. do, do_zh: what to do about it. why: the same with what was measured, where there is more
    to say; its arguments are names of the evidence. evidence: what proves it, by name, and of which kind each is.
    sentence: the whole sentence of a report, of {what} (operator types), {name} and {why}, and of the evidence; None
    for the usual one, which says what to keep.
    mended: higher precision for the operator mends it. out_of_range: what is kept is "above" what the narrow type
    holds, or "below" it, and so is what is made of it until something brings it back. gradient: where one that it
    spoils may lie: "below" the narrow type's range, "above" it, or both.
    unproven: a random operator may be mistaken for it. of_type: it blames the narrow type, its digits or its grid,
    for what may be of another operator of the target's file. of_many: it stands for many operators that were not
    seen, whose roundings add up, so that its size alone is no fault. enlarged: ordinary rounding that later
    operators make large, so that whoever rounds elsewhere seems guilty. by_a_pass: nothing here says why, so that a
    pass of the engine may.
    of_processor: a kernel does so on this processor, so that a pass that leads to it is not at fault.
    instead: what stands in the place of ``why`` where the evidence of that name is there and not empty; behind: what
    stands behind either so.
    fails: a run fails for it "always", or from the "least" error on that counts at all, because no arithmetic loses it;
    "" where the error's size decides. fails_with: evidence without which the size decides after all.
    one_switch: one setting for all operators, so that the worst stands for all.
    of_parameters: nothing mends it but parameters in a wider type. of_whole_numbers: whoever was given whole numbers
    that are others may have it.
    pastes: the evidence that says what to paste; "" where that follows from what is kept.
    undone: what the experiment behind it does, in words (see explain.undo, which runs it): undoing the cause, and it
    alone, has to take most of the operator's own error away, or the cause is not told; None: it has none.
    """

    en: str
    zh: str
    do: str
    do_zh: str
    why: Wording | None = None
    instead: Mapping[str, Wording] = field(default_factory=dict)
    behind: Mapping[str, Wording] = field(default_factory=dict)
    evidence: Mapping[str, Kind] = field(default_factory=dict)
    sentence: Wording | None = None
    mended: bool = True
    out_of_range: str = ""
    gradient: str = ""
    unproven: bool = False
    of_type: bool = False
    of_many: bool = False
    enlarged: bool = False
    by_a_pass: bool = False
    of_processor: bool = False
    fails: str = ""
    fails_with: str = ""
    one_switch: bool = False
    of_parameters: bool = False
    of_whole_numbers: bool = False
    pastes: str = ""
    undone: Wording | None = None

    def wording(self, evidence: Mapping[str, object]) -> Wording | None:
        """Return what says it with this evidence; None where it has no more than a few words."""
        return next((one for key, one in self.instead.items() if evidence.get(key)), self.why)

    def fails_for(self, evidence: Mapping[str, object]) -> str:
        """Return ``fails`` as it is with this evidence."""
        return self.fails if not self.fails_with or evidence.get(self.fails_with) else ""

    def is_open(self, evidence: Mapping[str, object]) -> bool:
        """Return whether it is told by sizes alone, which no experiment has borne out."""
        return self.unproven and not {"left", "amplifier"} & evidence.keys()

    @property
    def is_its_own(self) -> bool:
        """Whether it is what the operator's own arithmetic did: a wider type for it mends that, and nothing behind it
        made it large."""
        return self.mended and not self.enlarged

    def misfits(self, evidence: Mapping[str, object]) -> list[str]:
        """Return names that the words show and an evidence lacks, that nobody knows, or whose value is of another
        kind."""
        kinds = {**self.evidence, **(MEASURED if self.undone is not None else {})}
        wrong = [name for name, kind in kinds.items() if name in evidence and not kind.takes(evidence[name])]
        known = [self.wording(evidence), *(one for key, one in self.behind.items() if evidence.get(key))]
        shown = {name for one in known if one is not None for name in arguments_of(one.en)}
        return sorted({*wrong, *(evidence.keys() - kinds.keys()), *(shown - evidence.keys())})


OF_PARTS: Mapping[str, Kind] = {"folded": Kind.TEXT, "parts": Kind.TEXT}
"""What each of several roundings makes of one operator's error, and what is folded into its weight."""

PARTS: Mapping[str, Wording] = {
    "folded": Wording(
        "; the target holds that weight with {folded} folded into it", "；目标已将 {folded} 并入该权重"
    ),
    "parts": Wording(
        "; of its own squared error, each rounded alone makes: {parts}",
        "；在其自身误差平方中，各自单独舍入所占：{parts}",
    ),
}

SEEN = Wording(", and its error is seen at `{seen}`", "，其误差见于 `{seen}`")
"""Behind what is told of operators that one side alone has, where they are not compared themselves."""


THINGS: Mapping[str, Wording] = {
    "the_baseline": Wording("baseline", "基线"),
    "the_target": Wording("target", "目标"),
    "a_constant": Wording("constant", "常量"),
    "an_operator": Wording("operator", "算子"),
    "an_attribute": Wording("attribute", "属性"),
    "a_setting": Wording("setting of the configuration", "配置项"),
    "is_there": Wording("there", "有"),
    "their_sum": Wording("their sum", "其和"),
    "their_product": Wording("their product", "其积"),
    "the_last": Wording("the last of them", "最后一个"),
    "the_first": Wording("the first of them", "第一个"),
    "the_largest": Wording("the largest of them", "最大的一个"),
    "the_smallest": Wording("the smallest of them", "最小的一个"),
    "is_missing": Wording("missing", "无"),
    "no_operator": Wording("no operator", "无算子"),
    "axis_and_behind": Wording("{axis} with all axes behind it", "{axis} 及其后的所有轴"),
    "in_batch": Wording("inside a batch", "位于批次中"),
    "in_padded": Wording("with padding behind it", "其后有填充"),
    "an_input": Wording("what is read by", "所读取的张量："),
    "all_results": Wording("all its results", "其全部结果"),
    "all_inside": Wording(
        "all its results that are not at an end of the grid ({count} of {elements})",
        "其未处于网格两端的全部结果（{elements} 个中的 {count} 个）",
    ),
    "some_results": Wording("{count} of its {elements} results", "其 {elements} 个结果中的 {count} 个"),
    "read_as_of": Wording(
        "{name} of {type} {at} ({other} in the target's file)", "{type} {at} 的 {name}（目标文件中为 {other}）"
    ),
    "a_scale": Wording("scale of constant", "常量比例"),
    "constants_alone": Wording("constants", "常量"),
    "constant_named": Wording("constant {name}", "常量 {name}"),
    "a_result": Wording("what has the name", "名称所指的张量："),
    "transposed": Wording("{name} transposed (axes {axes})", "{name} 的转置（轴 {axes}）"),
    "from_the_end": Wording("{name} from the end of axis {axis}", "{name} 沿轴 {axis} 反向"),
    "halves_exchanged": Wording(
        "{name} with the halves of axis {axis} exchanged", "{name} 沿轴 {axis} 的两半互换"
    ),
    "halves_interleaved": Wording(
        "{name} with the halves of axis {axis} interleaved", "{name} 沿轴 {axis} 的两半交错"
    ),
    "even_before_odd": Wording(
        "{name} with the even places of axis {axis} before the odd ones", "{name} 沿轴 {axis} 先偶数位后奇数位"
    ),
    "in_its_place": Wording("{name}, with which it changed places,", "{name}（二者互换了位置）"),
    "an_order": Wording("the order of operators from", "算子的顺序：自"),
    "other_channels": Wording("any other", "其他任一个"),
    "quarter_of_channels": Wording("a quarter of the others", "其余的四分之一"),
    "channel": Wording("channel {number}", "通道 {number}"),
    "token": Wording("token {number}", "第 {number} 个 token"),
    "sample": Wording("sample {number}", "样本 {number}"),
    "head": Wording("head {number}", "第 {number} 个注意力头"),
    "place": Wording("index {number} of axis {axis}", "轴 {axis} 的第 {number} 个"),
    "read_as": Wording("{name} ({other} in the target's file)", "{name}（目标文件中为 {other}）"),
    "and_others": Wording(
        "{name} and {count} other {count:weight|weights} of the module", "{name}（及该模块的另外 {count} 个权重）"
    ),
    "all_of_another": Wording("{value}, as the whole of the baseline's {name}", "{value}（整体即基线的 {name}）"),
    "all_times": Wording("{value} (all {factor:.4g} times the baseline's)", "{value}（均为基线的 {factor:.4g} 倍）"),
    "in_other_order": Wording(
        "{value}, where the same numbers are in another order along axis {axis} ({order})",
        "{value}（同样的数沿轴 {axis} 的次序不同：{order}）",
    ),
    "in_blocks_in_other_order": Wording(
        "{value}, where the same numbers are in another order along axis {axis} (blocks of {size}: {order})",
        "{value}（同样的数沿轴 {axis} 的次序不同：每块 {size} 个，{order}）",
    ),
    "what_it_reads": Wording("{name}, as it reads it", "其所读取的 {name} 本身"),
    "in_order_along": Wording(
        "the baseline's in another order along axis {axis} ({order})", "基线的结果，但沿轴 {axis} 的次序不同（{order}）"
    ),
    "at_other_places": Wording("the baseline's numbers at other places", "基线的各数，但位置不同"),
    "raised_to": Wording("the baseline's, but none below {low:.4g}", "基线的结果，但不低于 {low:.4g}"),
    "lowered_to": Wording("the baseline's, but none above {high:.4g}", "基线的结果，但不高于 {high:.4g}"),
    "cut_at": Wording(
        "the baseline's, cut at {low:.4g} and {high:.4g}", "基线的结果，但截断于 {low:.4g} 与 {high:.4g}"
    ),
    "not_raised_to": Wording(
        "those that the baseline has without being cut below at {low:.4g}", "基线未在下方截断于 {low:.4g} 时的结果"
    ),
    "not_lowered_to": Wording(
        "those that the baseline has without being cut above at {high:.4g}", "基线未在上方截断于 {high:.4g} 时的结果"
    ),
    "not_cut_at": Wording(
        "those that the baseline has without being cut at {low:.4g} and {high:.4g}",
        "基线未截断于 {low:.4g} 与 {high:.4g} 时的结果",
    ),
    "times_the_baseline": Wording("{factor:.6g} times the baseline's", "基线的 {factor:.6g} 倍"),
    "more_than_the_baseline": Wording("the baseline's and {more:.6g} more", "基线的结果加 {more:.6g}"),
    "and_times_an_input": Wording(
        "the baseline's and {factor:.6g} times {name} more", "基线的结果加 {name} 的 {factor:.6g} 倍"
    ),
    "another_part_of": Wording(
        "{target} of {name}, where the baseline has {base} of it", "{name} 的 {target}，而基线取其 {base}"
    ),
    "times_along_an_axis": Wording(
        "the baseline's, times factors from {least:.4g} to {most:.4g} that are the same along axis {axis}",
        "基线的结果乘以沿轴 {axis} 不变的倍数（自 {least:.4g} 至 {most:.4g}）",
    ),
    "more_along_an_axis": Wording(
        "the baseline's and something more that is the same along axis {axis}", "基线的结果加上沿轴 {axis} 不变的数"
    ),
    "some_places": Wording("some places", "某些位置"),
    "all_places": Wording("all places", "所有位置"),
    "most_places": Wording("most places", "大部分位置"),
    "all_places_but": Wording("all places but {places}", "除 {places} 外的所有位置"),
    "numbers_to": Wording("of at most {most:.4g}", "不大于 {most:.4g} "),
    "numbers_from": Wording("of at least {least:.4g}", "不小于 {least:.4g} "),
    "sizes_from": Wording("of a size of at least {least:.4g}", "的绝对值不小于 {least:.4g} "),
    "one_of": Wording("{one} of {other}", "{other}的{one}"),
    "tried_each": Wording("{items:;}", "{items:;}"),
    "undone_leaves": Wording(
        "{what}: {undone}, {left} of its own error would be left", "{what}：{undone}，其自身误差仍剩 {left}"
    ),
}
"""What files_differ may be about, and what an outlier channel is beside."""
