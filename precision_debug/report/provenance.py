"""How the report came about: command, sides, tolerance, inputs, versions, machine."""

from __future__ import annotations

from ..reasons import Text, same
from ..records import ModelFiles, Side
from ..safety.linked_file import linked_file
from .figures import count, duration, figure, shape
from .model import Report
from .section import Cell, Section, linked, pair, plain
from .words import explained

__all__ = ["SIMULATION", "provenance"]

SIMULATION = Text(
    "A simulation: its arithmetic is imitated, not an engine's own.", "模拟：模仿其运算，并非引擎真实执行。"
)


def provenance(report: Report, tolerance: tuple[Text, ...]) -> tuple[Section, ...]:
    """Sections "run", "tolerance", "inputs", "saved" and "environment"; tolerance: the rule in words."""
    rule = [plain(Text("Rule", "规则")), *[plain(same(""))] * (len(tolerance) - 1)]
    return (
        _run(report),
        Section(
            key="tolerance",
            title=Text("Tolerance", "容差"),
            lines=tuple((label, plain(sentence)) for label, sentence in zip(rule, tolerance, strict=True)),
        ),
        _inputs(report),
        _saved(report),
        _environment(report),
    )


def _run(report: Report) -> Section:
    spec = report.spec
    lines = [pair(Text("Command", "命令"), spec.command, "code")] if spec.command else []
    if spec.options_from:
        lines.append(pair(Text("Options from", "选项来自"), spec.options_from))
    lines.append(pair(Text("Model", "模型"), _files(spec.model)))
    if spec.baseline_model is not None:
        lines.append(pair(Text("Baseline model", "基线模型"), _files(spec.baseline_model)))
    lines += _side(Text("Baseline", "基线"), report.baseline)
    lines += _side(Text("Target", "目标"), report.target)
    tensors = [f"{count(side.tensors)} ({side.mode})" for side in (report.baseline, report.target)]
    lines.append(pair(Text("Tensors in the graph", "图中张量数"), ", ".join(tensors)))
    if report.inputs_source:
        lines.append((plain(Text("Inputs", "输入")), plain(explained(report.inputs_source))))
    label = Text("Notes", "说明")
    for note in report.notes:
        lines.append((plain(label), plain(explained(note))))
        label = same("")
    return Section(key="run", title=Text("Run", "运行"), lines=tuple(lines))


def _files(model: ModelFiles) -> str:
    return "  ".join(path for path in (model.path, model.params_file) if path)


def _side(title: Text, side: Side) -> list[tuple[Cell, Cell]]:
    parts = [part for part in (side.backend, duration(side.seconds)) if part]
    lines = [pair(title, f"{side.mode} ({', '.join(parts)})" if parts else side.mode)]
    if side.simulation:
        lines.append((plain(same("")), Cell(text=SIMULATION, tone="warn")))
    lines += [(plain(same("")), plain(explained(note))) for note in side.notes]
    return lines


def _inputs(report: Report) -> Section:
    lines = [
        (
            plain(same(each.name)),
            plain(same(each.dtype)),
            plain(same(shape(each.shape))),
            plain(same(f"{figure(each.min)} … {figure(each.max)}" if each.min is not None else "")),
            plain(same(report.inputs_file)),
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


def _saved(report: Report) -> Section:
    rows = {row.name: row for row in report.rows}
    lines = [
        (
            linked(rows[name]) if name in rows else plain(same(name)),
            Cell(text=same(f"{place}.baseline"), tone="code"),
            Cell(text=same(f"{place}.target"), tone="code"),
            Cell(text=same(report.tensors_file), file=linked_file(report.tensors_file)),
        )
        for place, name in enumerate(report.saved_tensors if report.tensors_file else (), 1)
    ]
    return Section(
        key="saved",
        title=Text("Saved tensors: the worst, both sides", "保存的张量：误差最大者（两侧）"),
        head=(Text("Tensor", "张量"), Text("Baseline", "基线"), Text("Target", "目标"), Text("Stored in", "保存于")),
        lines=tuple(lines),
    )


def _environment(report: Report) -> Section:
    lines = []
    for title, side in ((Text("Baseline", "基线"), report.baseline), (Text("Target", "目标"), report.target)):
        if side.versions:
            text = ", ".join(f"{name} {version}" for name, version in side.versions.items())
            lines.append(pair(Text(f"{title.en} versions", f"{title.zh}版本"), text))
    lines += [pair(same(name), text) for name, text in report.machine.items()]
    if report.started:
        lines.append(pair(Text("Started", "开始时间"), report.started))
    if report.seconds:
        lines.append(pair(Text("Duration", "耗时"), duration(report.seconds)))
    return Section(key="environment", title=Text("Environment", "环境"), lines=tuple(lines))
