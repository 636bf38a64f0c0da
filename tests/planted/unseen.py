"""Judgement on cases that the rules never saw, as a user has them: ``python tests/planted/unseen.py [BATCH] [WORD …]``.

Each case is one command with its default settings, in a process of its own (in tests, a fork: tests/warm.py). Judged
are the exit status, the first culprit, its cause, whoever else is accused, whether the culprits of a narrow type,
kept in FP32 as the report says, repair the output, and whether sentence, HTML, workbook and JSON tell the same.
``BATCH``: first, second, third, fourth, fifth, sixth, seventh, eighth, ninth, tenth, eleventh, twelfth, thirteenth,
fourteenth, fifteenth, sixteenth, seventeenth, eighteenth, nineteenth, twentieth, twentyfirst, twentysecond,
twentythird, twentyfourth, where, again, or all.
"""

from __future__ import annotations

import concurrent.futures
import importlib
import json
import re
import shlex
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import warm

from precision_debug import registry

BATCHES = {
    "first": ("unseen_onnx", "unseen_clean", "unseen_files", "unseen_torch", "unseen_paddle", "unseen_openvino"),
    "second": ("second_onnx", "second_torch"),
    "third": ("third_onnx", "third_clean", "third_files", "third_torch", "third_paddle", "third_openvino"),
    "fourth": ("fourth_onnx", "fourth_clean", "fourth_files", "fourth_torch", "fourth_paddle", "fourth_openvino"),
    "fifth": ("fifth_onnx", "fifth_torch", "fifth_openvino"),
    "sixth": ("sixth_onnx", "sixth_torch", "sixth_paddle", "sixth_openvino"),
    "seventh": ("seventh_onnx", "seventh_torch", "seventh_openvino"),
    "eighth": ("eighth_onnx", "eighth_files", "eighth_torch", "eighth_openvino", "eighth_paddle"),
    "ninth": ("ninth",),
    "tenth": ("tenth_onnx", "tenth_files", "tenth_openvino", "tenth_torch", "tenth_paddle"),
    "eleventh": ("eleventh_onnx", "eleventh_torch"),
    "twelfth": ("twelfth.files", "twelfth.torch_cases", "twelfth.others"),
    "thirteenth": ("thirteenth_onnx", "thirteenth_torch"),
    "where": ("where_it_hurts",),
    "again": ("where_again",),
    "fourteenth": ("fourteenth_onnx", "fourteenth_torch", "fourteenth_others"),
    "fifteenth": ("fifteenth_onnx", "fifteenth_torch", "fifteenth_others"),
    "sixteenth": ("sixteenth_onnx", "sixteenth_torch", "sixteenth_others"),
    "seventeenth": ("seventeenth_onnx", "seventeenth_others", "seventeenth_torch"),
    "eighteenth": ("eighteenth_onnx", "eighteenth_others", "eighteenth_torch"),
    "nineteenth": ("nineteenth_onnx", "nineteenth_others", "nineteenth_torch"),
    "twentieth": ("twentieth_onnx", "twentieth_others", "twentieth_torch"),
    "twentyfirst": ("twentyfirst_onnx", "twentyfirst_narrow", "twentyfirst_others", "twentyfirst_torch"),
    "twentysecond": ("twentysecond_onnx", "twentysecond_narrow", "twentysecond_others", "twentysecond_torch"),
    "twentythird": ("twentythird_onnx", "twentythird_others", "twentythird_torch"),
    "twentyfourth": ("twentyfourth_onnx", "twentyfourth_others", "twentyfourth_torch"),
}


_MAKING = threading.Lock()
"""Paddle exports one program at a time."""


@dataclass(frozen=True, kw_only=True)
class Unseen:
    """make(folder): the target's model, the baseline's (None: the same), and feeds (None: the model's own, or made).

    who: tensors any of which is right as the first culprit; () where nobody is to be accused; anyone: nobody is right,
    too. why: accepted causes.
    also: further culprits that must be named; extra: such as may be. status: the right exit status. says: a word that
    the summary must have. fix: whether keeping the culprits in FP32 is to repair it. most: how many operators what is
    pasted may keep and still be good; 0: any number.
    """

    name: str
    kind: str
    mode: str
    make: Callable[[Path], tuple[str | Path, str | Path | None, Mapping[str, Any] | None]]
    who: tuple[str, ...] = ()
    why: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    status: int = 0
    says: str = ""
    fix: bool = True
    most: int = 0
    baseline: str = ""
    options: Sequence[str] = ()
    anyone: bool = False


_LABELLED = {"per_channel": "true", "pre_process": "true"}
"""What of the quantiser the labels of ``ort_int8`` are about: its guide's two steps, in place of the bare call."""


@dataclass
class Said:
    """What a report said of a case, and what of it is right; None: was not asked."""

    right: dict[str, bool] = field(default_factory=dict)
    text: str = ""


def command(case: Unseen, folder: Path, outputs: Sequence[str], extra: Sequence[str] = ()) -> tuple[int, str]:
    """Run it as a user does."""
    with _MAKING:
        model, base, feeds = case.make(folder)
    words = ["--model_file", str(model), "--run_mode", case.mode]
    if base is not None:
        words += ["--baseline_model", str(base), "--baseline", case.baseline or case.mode]
    elif case.baseline:
        words += ["--baseline", case.baseline]
    if feeds is not None:
        np.savez(folder / "in.npz", **feeds)
        words += ["--inputs", str(folder / "in.npz")]
    labelled = _LABELLED if case.mode == "ort_int8" else {}
    for name, value in labelled.items():
        words += ["--option", f"{name}={value}"] if not any(name in word for word in case.options) else []
    words += [*case.options, *(word for output in outputs for word in ("--output", str(folder / output))), *extra]
    done = warm.command(*words, timeout=600)
    return done.returncode, done.stdout + done.stderr


def list_named(culprits: Sequence[Mapping[str, Any]], labelled: Collection[str]) -> list[str]:
    """Return who is told: the operator that the sentence is about, where a label has it, or the row that shows it."""
    owners = (one["evidence"].get("owner", one["name"]) for one in culprits)
    return [owner if owner in labelled else one["name"] for owner, one in zip(owners, culprits, strict=True)]


def judge(case: Unseen) -> Said:
    """One case, in a folder of its own; a case that cannot be judged is wrong."""
    try:
        return _judge(case)
    except Exception as error:
        return Said(right={"judged": False}, text=f"{type(error).__name__}: {error}")


def _judge(case: Unseen) -> Said:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        status, printed = command(case, folder, ["r.json", "r.html", "r.xlsx"])
        float32 = not case.who and case.mode == "ort_fp16" and "Nothing ran in FP16" in printed  # then inconclusive
        said = Said(right={"status": status == (1 if float32 else case.status)})
        if not (folder / "r.json").exists():
            said.text = f"status {status}, no report: {printed[-600:]}"
            refused = case.status == status and not case.who  # nothing could be compared, and the label says so
            said.right |= {"who": refused, "why": refused}
            return said
        report = json.loads((folder / "r.json").read_text())
        found = report["summary"]["culprits"]
        names = list_named(found, {*case.who, *case.also, *case.extra})
        explained = report["explanation"] or {}
        said.text = (
            f"status {status} {report['summary']['verdict']}, {explained.get('state')} {explained.get('reason')}; "
        )
        said.text += "; ".join(f"{one['sentence']} [{one.get('share')}, {one.get('units')}]" for one in found[:3])
        if case.who and (names or not case.anyone):
            said.right["who"] = bool(names) and names[0] in case.who
            said.right["why"] = said.right["who"] and found[0]["cause"] in case.why
            said.right["others"] = {*names} <= {*case.who, *case.also, *case.extra}
            if case.also:
                said.right["also"] = set(case.also) <= set(names)
        else:
            said.right["who"] = not names
        if case.says:
            said.right["says"] = case.says.lower() in (printed + json.dumps(report["summary"])).lower()
        # where the user's metric holds, the screen leaves whoever makes the error to the report
        shown = not ("--metric" in case.options and status == 0)
        said.right["same"] = not (apart := _apart(folder, report, printed, shown=shown))
        said.text += apart
        kept = report.get("to_keep") or {}
        if said.right["who"] and names and case.who and case.fix and found[0]["cause"] != "files_differ":
            if kept.get("option") or case.mode in KEEPERS:
                said.right["fix"] = _repaired(case, folder, found, report, said)
                if case.most:
                    said.right["small"] = _how_many(kept.get("option") or "") <= case.most
            elif kept:  # there is somebody to keep, and nothing to paste
                said.right["fix"] = False
                said.text += f"; nothing to paste: {kept}"
        return said


def _apart(folder: Path, report: Mapping[str, Any], printed: str, *, shown: bool = True) -> str:
    """Where the formats do not say the same of the culprits and the verdict; "" where they do. shown: on the screen,
    too, whoever is named."""
    import zipfile
    from html import unescape

    with zipfile.ZipFile(folder / "r.xlsx") as book:
        sheets = unescape("".join(book.read(name).decode() for name in book.namelist() if name.endswith(".xml")))
    page = unescape(re.sub("</?(code|wbr|b)>", "", (folder / "r.html").read_text()))
    texts = {"html": " ".join(page.split()), "xlsx": sheets, "terminal": " ".join(printed.split())}
    named, verdict = [one["sentence"] for one in report["summary"]["culprits"][:1]], report["summary"]["verdict"]
    return "".join(
        f"; {where} does not say '{want}'" for where, text in texts.items()
        for want in (*(named if shown or where != "terminal" else []), verdict)
        if want.lower() not in text.lower() and want.lower().replace("`", "") not in text.lower().replace("`", "")
    )  # fmt: skip


def _tensor_names(case: Unseen, model: Path, kept: Sequence[str]) -> list[str]:
    """What is kept, and what its readers make: "keep x in FP32, with what reads it"."""
    import onnx

    plain = {name.partition("@")[0] for name in kept}
    nodes, waiting = [], [onnx.load(str(model)).graph]
    while waiting:
        graph = waiting.pop()
        nodes += graph.node
        waiting += [a.g for node in graph.node for a in node.attribute if a.HasField("g")]
    return [*kept, *(node.output[0] for node in nodes if {*node.input} & plain)]


def _paste(flag: str, names: Callable[[Unseen, Path, Sequence[str]], list[str]]) -> Any:
    return lambda case, model, kept: ["--option", f"{flag}={','.join(names(case, model, kept))}"]


KEEPERS = {
    "ort_fp16_sim": _paste("node_block_list", _tensor_names), "ort_bf16_sim": _paste("node_block_list", _tensor_names),
    "ort_int8": _paste("nodes_to_exclude", _tensor_names), "ort_fp16": _paste("node_block_list", _tensor_names),
    "ort_int8_dynamic": _paste("nodes_to_exclude", _tensor_names),
    "ov_bf16": _paste("keep_fp32", _tensor_names),
}  # fmt: skip
"""How a mode is told what to keep."""


def _repaired(
    case: Unseen, folder: Path, found: Sequence[Mapping[str, Any]], report: Mapping[str, Any], said: Said
) -> bool:
    """Whether the command with what the report says to paste, or with every culprit kept where it says nothing, passes,
    or is at least ten times nearer at its worst output."""
    with _MAKING:
        model = case.make(folder)[0]
    kept = [name for one in found for name in one["keep"]]
    pasted = shlex.split((report.get("to_keep") or {}).get("option") or "")
    status, printed = command(case, folder, ["k.json"], pasted or KEEPERS[case.mode](case, model, kept))
    kept = pasted or kept
    if not (folder / "k.json").exists():
        said.text += f"; kept: status {status} {printed[-300:]}"
        return False
    after = json.loads((folder / "k.json").read_text())
    before, now = _worst(report), _worst(after)
    said.text += f"; kept {kept}: status {status}, {before:.3g} -> {now:.3g}"
    return status == 0 or now < before / 10


def _how_many(option: str) -> int:
    """The names in what is to be pasted, as ``--option 'node_block_list=["a", "b"]'``."""
    lists = [word.partition("=")[2] for word in shlex.split(option) if "=" in word]
    return sum(len(json.loads(one)) if one.startswith("[") else len(one.split(",")) for one in lists)


def _worst(report: Mapping[str, Any]) -> float:
    """The worst output's Rel L2; inf where one is not finite."""
    worst = 0.0
    for row in report["rows"]:
        if row.get("is_output") and (numbers := row.get("comparison")):
            lost = any(numbers["target"].get(key, 0) > numbers["base"].get(key, 0) for key in ("nan", "inf"))
            size = numbers["base"].get("rms")
            off = numbers.get("rmse")
            lost = lost or isinstance(off, dict)  # JSON has no infinity: it stands in words there
            worst = max(worst, float("inf") if lost else (off / size if off is not None and size else 0.0))
    return worst


def runs_here(mode: str) -> bool:
    """Whether what the mode needs is installed."""
    return any(one.name == mode and backend.availability(mode).ok for backend in registry.backends()
               for one in backend.run_modes)  # fmt: skip


def cases(batch: str) -> list[Unseen]:
    """Of one batch, or of all."""
    found: list[Unseen] = []
    for module in [name for key, names in BATCHES.items() if batch in {key, "all"} for name in names]:
        if (Path(__file__).parent / f"{module.replace('.', '/')}.py").exists():
            found += importlib.import_module(f"planted.{module}").CASES
    return found


def main() -> int:
    begun = time.monotonic()
    words = sys.argv[1:]
    batch = words.pop(0) if words and words[0] in {*BATCHES, "all"} else "all"
    chosen = [
        one for one in cases(batch) if not words or any(word in f"{one.name} {one.mode} {one.kind}" for word in words)
    ]
    here = {one.mode: runs_here(one.mode) for one in chosen}
    print(*(f"left out: {mode} cannot run here\n" for mode, runs in here.items() if not runs), sep="", end="")
    chosen = [one for one in chosen if here[one.mode]]
    table: dict[str, Counter[str]] = {}
    wrong: Counter[str] = Counter()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for one, said in zip(chosen, pool.map(judge, chosen), strict=True):
            count = table.setdefault(one.kind, Counter())
            count["cases"] += 1
            bad = [key for key, good in said.right.items() if not good]
            wrong.update(bad)
            wrong["cases"] += bool(bad)
            for key in ("status", "who", "why", "fix"):
                count[key] += said.right.get(key, True)
            count["all"] += not bad
            if bad or words:
                print(f"{' '.join(bad) or 'right':20s} {one.name} ({one.mode}): {said.text}", flush=True)
    for kind, count in sorted(table.items()):
        print(
            "| "
            + " | ".join([kind, *(str(count[key]) for key in ("cases", "status", "who", "why", "fix", "all"))])
            + " |"
        )
    print(
        f"{len(chosen)} cases, {len(chosen) - wrong['cases']} wholly right; wrong: {dict(wrong)};"
        f" {time.monotonic() - begun:.0f} s"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
