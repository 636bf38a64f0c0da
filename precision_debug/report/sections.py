"""Build the sections of a summary: slices, precision, provenance, several builds."""

from __future__ import annotations

import datetime
import math
import os
import platform
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from ..__about__ import __version__
from ..explain.operators import plain_type
from ..explain.units import INTEGERS
from ..inspector import find_real_precision
from ..numbers.number_types import CONVERTS, PRECISIONS, QUANTISED, find_promise, number_type
from ..numbers.slices import WHOLE
from ..numbers.told import Repeats
from ..reasons import Text, same
from ..records import ModelFiles, Row, Side, Slices, Status
from ..safety.untrusted import find_linked_file
from .model import Report
from .words import count, explain_reason, format_duration, format_figure, format_percent, format_shape

__all__ = [
    "Cell",
    "Section",
    "describe_machine",
    "find_processor",
    "label_and_value",
    "linked_cell",
    "local_time",
    "make_precision_section",
    "make_provenance_sections",
    "make_repeat_section",
    "make_slice_section",
    "plain_cell",
    "repeat_sentences",
    "unit_of",
]  # fmt: skip


# The building blocks of a summary.

@dataclass(frozen=True, kw_only=True)
class Cell:
    """A cell of a table.

    tone: "" "good" "bad" "warn" "muted" "code" or "paste": to be copied, as it is, into a shell or a script. right: a
    number. row: the table row that it leads to. file: the file that it leads to, relative to the report (see
    safety.linked_file)."""

    text: Text
    tone: str = ""
    right: bool = False
    row: int | None = None
    file: str = ""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A titled block: a table with a head, or (no head) lines of label and value."""

    key: str
    title: Text
    head: tuple[Text, ...] = ()
    lines: tuple[tuple[Cell, ...], ...] = ()

    def without_empty_columns(self) -> Section:
        """Without columns in which no line says anything; the first one stays."""
        kept = [
            number for number in range(len(self.head))
            if not number or any(len(line) > number and line[number].text.en for line in self.lines)
        ]  # fmt: skip
        if len(kept) == len(self.head):
            return self
        return Section(
            key=self.key, title=self.title, head=tuple(self.head[number] for number in kept),
            lines=tuple(tuple(line[number] for number in kept if number < len(line)) for line in self.lines),
        )  # fmt: skip


def plain_cell(text: Text) -> Cell:
    """Ordinary text."""
    return Cell(text=text)


def label_and_value(label: Text, value: str, tone: str = "") -> tuple[Cell, Cell]:
    """Return a line of label and value."""
    return Cell(text=label), Cell(text=same(value), tone=tone)


def linked_cell(row: Row, tone: str = "") -> Cell:
    """Return the name of a row, leading to it."""
    return Cell(text=same(row.name), tone=tone, row=row.index)


# The worst slices of each output, each beside its own size: what its one error over everything does not show.

_WORTH_A_LINE = 0.1
"""Part of a slice's own spread from which on its error is shown, although it still tells something."""

_MOST = 64
"""Lines, at most; the JSON has those of every output."""


def make_slice_section(report: Report) -> Section:
    """Return what is lost of each output, and its worst slices besides; no line where every slice is told well."""
    head = (
        Text("Output", "输出"), Text("Axis", "轴"), Text("Slices", "切片"), Text("State", "状态"),
        Text("Error of its own size", "误差占自身大小"), Text("RMS of the error", "误差均方根"),
        Text("RMS (base)", "均方根（基线）"), Text("Spread (base)", "离散程度（基线）"),
        Text("Largest (base)", "最大值（基线）"), Text("Largest of the whole (base)", "整个输出的最大值（基线）"),
    )  # fmt: skip
    lines = [line for row in report.outputs for line in _slices_of_output(row)]
    title = Text("Worst slices of the outputs", "各输出中最差的切片")
    return Section(key="slices", title=title, head=head, lines=tuple(lines[:_MOST]))


def _slices_of_output(row: Row) -> Iterator[tuple[Cell, ...]]:
    """Yield those that are lost, and the worst of the others as far as they are worth a line."""
    numbers = row.comparison
    for one in numbers.slices if numbers is not None else ():
        told_of = numbers is not None and not one.lost and any(
            (gone.axis, gone.first <= one.first, one.last <= gone.last) == (one.axis, True, True)
            for gone in numbers.lost
        )  # fmt: skip
        far = bool(one.spread) and float(one.error) >= _WORTH_A_LINE * float(one.spread)
        if one.lost or (far and not told_of):
            yield _slice_line(row, one)


def _slice_line(row: Row, one: Slices) -> tuple[Cell, ...]:
    ends = str(one.first) if one.first == one.last else f"{one.first} - {one.last}"
    state = Text("lost", "已丢失") if one.lost else Text("told", "尚可分辨")
    share = format_percent(float(one.error) / float(one.size)) if one.size else "inf"
    figures = (one.error, one.size, one.spread, one.peak, one.largest)
    which = Text(f"{ends} of {count(one.of)}", f"{count(one.of)} 个中的 {ends}")
    whole = one.axis == WHOLE
    return (
        linked_cell(row), Cell(text=same("" if whole else str(one.axis)), right=True),
        plain_cell(Text("all", "全部") if whole else which),
        Cell(text=state, tone="bad" if one.lost else "muted"), Cell(text=same(share), right=True),
        *(Cell(text=same(format_figure(float(value))), right=True) for value in figures),
    )  # fmt: skip


# In which precision the target really ran: what the engine's inspector told, else the types that its tensors have.

_TOLD = "Real Precision"


def _held_type(row: Row) -> str:
    """Return what the operator that made it computes in, as far as its own tensor tells; "" for the carriers
    between."""
    side = row.comparison.target if row.comparison is not None else None
    if side is None:
        return ""
    if row.view == "dequantised" or QUANTISED.search(row.target_op_type):
        return "INT8"
    for known in PRECISIONS.values():  # a quantised layer's result is in the type that its readers take
        if known.narrow and row.target_op_type.startswith(tuple(f"{name}." for name in known.shown_by)):
            return known.short
    held = number_type(side.dtype)
    return held.short if held is not None and (held.bits or held.name in INTEGERS) else side.dtype


def _multiplies_integers(row: Row) -> bool:
    """Return whether a row is a product of integers that the target alone has.

    Of such a one the rows of the baseline's tensors have the result that another operator scales back to floats."""
    kind = plain_type(row.target_op_type or row.op_type)
    return row.status is Status.UNMATCHED and bool(QUANTISED.search(kind)) and not CONVERTS.fullmatch(kind)


def make_precision_section(report: Report) -> Section:
    """Return layers by real precision where an engine told them; else tensors by the type in which the target holds
    them."""
    if report.layers:
        found = Counter(find_real_precision(layer)[0] or "?" for layer in report.layers if not layer.is_reformat)
        what, source = Text("Layers", "层数"), Text("reported by the engine's inspector", "由引擎 inspector 给出")
    elif any(_TOLD in row.extra for row in report.rows):
        found = Counter(row.extra[_TOLD] for row in report.rows if _TOLD in row.extra)
        what, source = Text("Tensors", "张量数"), Text("reported by the engine", "由引擎给出")
    else:
        found = Counter(filter(None, map(_held_type, report.rows)))
        if whole := len({row.node or row.name for row in report.rows if _multiplies_integers(row)}):
            found["INT8"] += whole
        what = Text("Tensors", "张量数")
        source = Text("the type of the target operator's result", "目标算子给出张量的类型")
    if report.target.simulation:
        source = Text(
            "a simulation: rounded to the mode's type, computed in this type",
            "模拟：舍入到该模式的类型，但以此类型计算",
        )
    total = sum(found.values())
    return Section(
        key="precision",
        title=Text("Precision that really ran", "实际运行精度"),
        head=(Text("Precision", "精度"), what, Text("Share", "占比"), Text("Told by", "依据")),
        lines=tuple(
            (
                plain_cell(same(name)),
                Cell(text=same(count(number)), right=True),
                Cell(text=same(format_percent(number / total)), right=True),
                plain_cell(source),
            )
            for name, number in found.most_common(8)
        ),
    )


def unit_of(report: Report) -> float:
    """Return the relative error of rounding once to the target's type: measured, else of what the mode promises."""
    explanation = report.explanation
    if explanation is not None and explanation.unit:
        return explanation.unit
    promise = find_promise(report.target.precision)
    return promise.rounding if promise.narrow and promise.rounding else find_promise("float32").rounding


# Where and when a report was made.

def describe_machine() -> dict[str, str]:
    """Return what the report says of where it was made."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "precision_debug": __version__,
        "python": platform.python_version(),
        "platform": _platform_text(),
        "host": platform.node(),
        "processor": find_processor(),
        "cores": str(count),
        "executable": sys.executable,
    }


def local_time() -> str:
    """Local time to the second, ISO 8601 with its offset."""
    return datetime.datetime.now().astimezone().isoformat(timespec="seconds")


def _platform_text() -> str:
    """As ``platform.platform``, which starts a process to ask for the processor and leaves the answer out."""
    system = platform.uname()
    name = f"{system.system}-{system.release}-{system.machine}"
    return name if sys.platform != "linux" else "-with-".join(filter(None, [name, "".join(platform.libc_ver())]))


def find_processor() -> str:
    """Return the processor's model where the system tells it, else its kind."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


# How the report came about: command, sides, tolerance, inputs, versions, machine.

SIMULATION = Text(
    "A simulation: its arithmetic is imitated, not an engine's own.", "模拟：模仿其运算，并非引擎真实执行。"
)


def make_provenance_sections(report: Report, tolerance: tuple[Text, ...]) -> tuple[Section, ...]:
    """Sections "run", "tolerance", "inputs", "saved" and "environment"; tolerance: the rule in words."""
    rule = [plain_cell(Text("Rule", "规则")), *[plain_cell(same(""))] * (len(tolerance) - 1)]
    return (
        _run(report),
        Section(
            key="tolerance",
            title=Text("Tolerance", "容差"),
            lines=tuple((label, plain_cell(sentence)) for label, sentence in zip(rule, tolerance, strict=True)),
        ),
        _make_inputs_section(report),
        _make_saved_section(report),
        _make_environment_section(report),
    )


def _run(report: Report) -> Section:
    spec = report.spec
    lines = [label_and_value(Text("Command", "命令"), spec.command, "code")] if spec.command else []
    if spec.options_from:
        lines.append(label_and_value(Text("Options from", "选项来自"), spec.options_from))
    lines.append(label_and_value(Text("Model", "模型"), _files_text(spec.model)))
    if spec.baseline_model is not None:
        lines.append(label_and_value(Text("Baseline model", "基线模型"), _files_text(spec.baseline_model)))
    lines += _side_lines(Text("Baseline", "基线"), report.baseline)
    lines += _side_lines(Text("Target", "目标"), report.target)
    tensors = [f"{count(side.tensors)} ({side.mode})" for side in (report.baseline, report.target)]
    lines.append(label_and_value(Text("Tensors in the graph", "图中张量数"), ", ".join(tensors)))
    if report.inputs_source:
        lines.append((plain_cell(Text("Inputs", "输入")), plain_cell(explain_reason(report.inputs_source))))
    label = Text("Notes", "说明")
    for note in report.notes:
        lines.append((plain_cell(label), plain_cell(explain_reason(note))))
        label = same("")
    return Section(key="run", title=Text("Run", "运行"), lines=tuple(lines))


def _files_text(model: ModelFiles) -> str:
    return "  ".join(path for path in (model.path, model.params_file) if path)


def _side_lines(title: Text, side: Side) -> list[tuple[Cell, Cell]]:
    parts = [part for part in (side.backend, format_duration(side.seconds)) if part]
    lines = [label_and_value(title, f"{side.mode} ({', '.join(parts)})" if parts else side.mode)]
    if side.simulation:
        lines.append((plain_cell(same("")), Cell(text=SIMULATION, tone="warn")))
    lines += [(plain_cell(same("")), plain_cell(explain_reason(note))) for note in side.notes]
    return lines


def _make_inputs_section(report: Report) -> Section:
    lines = [
        (
            plain_cell(same(each.name)),
            plain_cell(same(each.dtype)),
            plain_cell(same(format_shape(each.shape))),
            plain_cell(same(f"{format_figure(each.min)} … {format_figure(each.max)}" if each.min is not None else "")),
            plain_cell(same(report.inputs_file)),
            Cell(text=same(each.sha256[:32]), tone="code"),
        )
        for each in report.inputs
    ]
    return Section(
        key="inputs",
        title=Text("Inputs, the same for both sides", "输入（两侧相同）"),
        head=(
            Text("Name", "名称"), Text("Dtype", "类型"), Text("Shape", "形状"), Text("Range", "范围"),
            Text("Stored in", "保存于"), Text("SHA-256, first half", "SHA-256（前半）"),
        ),
        lines=tuple(lines),
    )  # fmt: skip


def _make_saved_section(report: Report) -> Section:
    rows = {row.name: row for row in report.rows}
    lines = [
        (
            linked_cell(rows[name]) if name in rows else plain_cell(same(name)),
            Cell(text=same(f"{place}.baseline"), tone="code"),
            Cell(text=same(f"{place}.target"), tone="code"),
            Cell(text=same(report.tensors_file), file=find_linked_file(report.tensors_file)),
        )
        for place, name in enumerate(report.saved_tensors if report.tensors_file else (), 1)
    ]
    return Section(
        key="saved",
        title=Text("Saved tensors: the worst, both sides", "保存的张量：误差最大者（两侧）"),
        head=(Text("Tensor", "张量"), Text("Baseline", "基线"), Text("Target", "目标"), Text("Stored in", "保存于")),
        lines=tuple(lines),
    )


def _make_environment_section(report: Report) -> Section:
    lines = []
    for title, side in ((Text("Baseline", "基线"), report.baseline), (Text("Target", "目标"), report.target)):
        if side.versions:
            text = ", ".join(f"{name} {version}" for name, version in side.versions.items())
            lines.append(label_and_value(Text(f"{title.en} versions", f"{title.zh}版本"), text))
    lines += [label_and_value(same(name), text) for name, text in report.machine.items()]
    if report.started:
        lines.append(label_and_value(Text("Started", "开始时间"), report.started))
    if report.seconds:
        lines.append(label_and_value(Text("Duration", "耗时"), format_duration(report.seconds)))
    return Section(key="environment", title=Text("Environment", "环境"), lines=tuple(lines))


# What several builds of the target say: how far they are apart, beside the error, and where that begins.

_AS_LARGE = 0.5
"""Two builds that are apart by this part of the error are as far from each other as from the baseline: of two errors
of one size that have nothing in common the distance is 1.4 times that size."""
_SHOWN = 8


def as_large(row: Row) -> bool:
    """Return whether the builds differ as much from each other in this tensor as they do from the baseline."""
    apart = row.repeated
    return apart is not None and apart.times > 0 and float(apart.rel_l2) >= _AS_LARGE * (row.relative_l2 or 0.0)


def repeat_sentences(report: Report) -> tuple[Text, ...]:
    """Return what the verdict has to say of it; nothing where the target was built once."""
    repeats = report.repeats
    if repeats is None:
        return ()
    builds = count(repeats.count)
    apart = [row for row in report.rows if row.repeated is not None and row.repeated.times]
    if not apart:
        return (
            Text(
                f"{builds} builds of the target give the same tensors, bit for bit.",
                f"目标的 {builds} 次构建得到的张量逐位相同。",
            ),
        )
    outputs = [row for row in apart if row.is_output]
    worst = max(outputs or apart, key=_distance_between_builds)
    begins = _first_random_sentence(report, repeats)
    between, error = format_figure(_distance_between_builds(worst)), format_figure(worst.relative_l2) or "0"
    if report.outputs and not outputs:
        return (
            Text(
                f"{builds} builds of the target give the same outputs; inside, {count(len(apart))} tensors differ, by"
                f" up to {between} (Rel L2) at `{worst.name}`{begins.en}.",
                f"目标的 {builds} 次构建输出相同；内部有 {count(len(apart))} 个张量不同，`{worst.name}` 处最多相差"
                f" {between}（相对 L2）{begins.zh}。",
            ),
        )
    if as_large(worst):
        return (
            Text(
                f"{builds} builds of the target are as far from each other as from the baseline: at `{worst.name}` by"
                f" {between} (Rel L2), and the error is {error}, so that much of it is chance{begins.en}.",
                f"目标的 {builds} 次构建彼此之间的差异与其相对基线的误差一样大：`{worst.name}` 处相差 {between}"
                f"（相对 L2），误差为 {error}，因此其中很大一部分是偶然的{begins.zh}。",
            ),
        )
    return (
        Text(
            f"{builds} builds of the target are apart by up to {between} (Rel L2) at `{worst.name}`, where the error is"
            f" {error}{begins.en}.",
            f"目标的 {builds} 次构建在 `{worst.name}` 处最多相差 {between}（相对 L2），该处误差为 {error}{begins.zh}。",
        ),
    )


def _first_random_sentence(report: Report, repeats: Repeats) -> Text:
    by_name = {row.name: row for row in report.rows}
    first = [by_name[name] for name in repeats.first if name in by_name]
    if not first:
        return same("")
    named = f"{first[0].op_type} `{first[0].name}`"
    return Text(f"; it begins at {named}", f"；始于 {named}")


def make_repeat_section(report: Report) -> Section:
    """Return each build's error by output, where the randomness begins, and where it is largest; no lines without
    repeats."""
    repeats, title = report.repeats, Text("Builds of the target", "目标的多次构建")
    if repeats is None:
        return Section(key="repeats", title=title)
    rows = [row for row in report.rows if row.repeated is not None]
    apart = [row for row in rows if row.repeated is not None and row.repeated.times]
    lines: list[tuple[Cell, ...]] = [
        label_and_value(Text("builds", "构建次数"), count(repeats.count)),
        label_and_value(
            Text("seconds each", "每次耗时"), ", ".join(format_duration(float(one)) for one in repeats.seconds)
        ),
        label_and_value(Text("tensors that differ", "有差异的张量"), f"{count(len(apart))} / {count(len(rows))}"),
    ]
    if repeats.sample is not None:
        lines.append(label_and_value(Text("sample", "样本"), str(repeats.sample)))
    for name, errors in repeats.errors.items():
        label = Text(f"Rel L2 of each, {name}", f"各次相对 L2 误差，{name}")
        lines.append(label_and_value(label, ", ".join(format_figure(float(error)) for error in errors)))
    by_name = {row.name: row for row in apart}
    label = Text("it begins at", "差异始于")
    for name in repeats.first:
        if name in by_name:
            lines.append((plain_cell(label), linked_cell(by_name[name]), plain_cell(_distance_text(by_name[name]))))
            label = same("")
    label = Text("it is largest at", "差异最大处")
    for row in sorted(apart, key=_distance_between_builds, reverse=True)[:_SHOWN]:
        lines.append((plain_cell(label), linked_cell(row), plain_cell(_distance_text(row))))
        label = same("")
    if repeats.tactics_changed:
        more = f" ({count(repeats.tactics_changed)})" if repeats.tactics_changed > len(repeats.tactics) else ""
        lines.append(
            label_and_value(
                Text("layers with other tactics", "所用 tactic 不同的层"), ", ".join(repeats.tactics) + more
            )
        )
    if repeats.not_in_all:
        lines.append(
            label_and_value(Text("tensors not in every build", "并非每次都有的张量"), ", ".join(repeats.not_in_all))
        )
    return Section(key="repeats", title=title, lines=tuple(lines))


def _distance_text(row: Row) -> Text:
    between, error = format_figure(_distance_between_builds(row)), format_figure(row.relative_l2) or "0"
    return Text(f"{between} apart, error {error}", f"相差 {between}，误差 {error}")


def _distance_between_builds(row: Row) -> float:
    apart = 0.0 if row.repeated is None else float(row.repeated.rel_l2)
    return math.inf if math.isnan(apart) else apart
