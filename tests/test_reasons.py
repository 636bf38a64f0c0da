"""Reasons are codes with arguments: each has both languages, uses its arguments, and none is a bare string."""

from __future__ import annotations

import ast
import copy
import json
import math
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import house_numbers
import numpy as np
import pytest

import precision_debug
from precision_debug import AssertClose, SaveBaseline, registry
from precision_debug.codec import decode, encode
from precision_debug.reasons import CORE, Catalogue, Reason, Wording, arguments_of, fill_template, say
from precision_debug.reasons.causes import CAUSES, WORDINGS
from precision_debug.reasons.doubts import DOUBTS
from precision_debug.reasons.rows import ROWS
from precision_debug.reasons.ways import WAYS, explain_way, way
from precision_debug.reasons.what_to_do import WHAT_TO_DO
from precision_debug.records import Row, Status
from precision_debug.report.layout import list_columns, list_columns_for_people
from precision_debug.report.summary import STATUS_NAME, summarise
from precision_debug.report.words import explain_reason, is_whole, reason_text, strip_side

pytestmark = pytest.mark.quick

CATALOGUES = {"": CORE, **{backend.name: backend.reasons for backend in registry.backends() if backend.name != "fake"}}
SPOKEN = [
    (say("shape"), "shape", "形状不同"),
    (say("types", base="float32", target="str"), "types: float32 against str", "类型不同：float32 与 str"),
    (
        say("elements_and", count=3, all=12, special=say("in_target", what="NaN")),
        "3 of 12 elements, NaN in the target", "12 个元素中有 3 个，目标中有 NaN",
    ),
    (
        say("statistic", name="quantile 0.99", abs=1.2, atol=1e-4, rel=3.0, rtol=1e-4),
        "quantile 0.99 abs 1.2 > 0.0001 and quantile 0.99 rel 3 > 0.0001",
        "quantile 0.99：绝对误差 1.2 > 0.0001，且相对误差 3 > 0.0001",
    ),
    (
        say("of_target", why=CATALOGUES["onnxruntime"]("same_as", name="a{0}")),
        "target: holds the same values as a{0}", "目标：与 a{0} 数值相同",
    ),
    (
        say("of_target", why=CATALOGUES["tensorrt"]("refused", detail="Error Code 4\n{x} is one")),
        "target: TensorRT refuses it as an output: Error Code 4\n{x} is one",
        "目标：TensorRT 拒绝将其作为输出：Error Code 4\n{x} is one",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "english", "chinese"), SPOKEN)
def test_a_reason_has_its_chinese_with_the_same_names_and_numbers(reason: Reason, english: str, chinese: str) -> None:
    assert explain_reason(reason) == (english, chinese)
    assert pickle.loads(pickle.dumps(reason)).args == copy.deepcopy(reason).args == reason.args
    with pytest.raises(AttributeError):
        reason.code = "other"


def test_what_nobody_knows_stays_as_it_is() -> None:
    assert explain_reason("the unicorn has left") == ("the unicorn has left", "the unicorn has left")
    assert explain_reason("target: the unicorn has left").zh == "目标：the unicorn has left"
    assert explain_reason("") == ("", "")
    for args in ({}, {"count": 1}, {"count": "x", "all": {}}):
        assert explain_reason(Reason("gone", "elements", args)).en == "gone"
    assert (
        explain_reason(Reason("gone", "elements", {})).zh == explain_reason(Reason("gone", "no.such", {})).zh == "gone"
    )


def test_old_files_without_codes_are_still_understood() -> None:
    assert explain_reason("baseline: holds the same values as x").zh == "基线：与 x 数值相同"
    assert is_whole("target: holds the same values as x")
    assert not is_whole("target: TensorRT refuses it as an output: x")
    assert strip_side("target: holds the same values as x").code.endswith(".same_as")


@pytest.mark.parametrize("reason", [reason for reason, _, _ in SPOKEN])
def test_a_reason_travels_with_its_code_and_its_sentence(reason: Reason) -> None:
    row = Row(index=0, op_type="Add", name="x", status=Status.FAIL, reason=reason)
    plain = json.loads(json.dumps(encode(row)))
    assert plain["reason"] == str(reason)
    back = decode(Row, plain)
    assert back == row
    assert (back.reason.code, back.reason.args) == (reason.code, reason.args)
    assert explain_reason(back.reason) == explain_reason(reason)
    del plain["codes"]
    assert decode(Row, plain).reason == str(reason)


def test_a_catalogue_of_another_wheel_is_asked_for_by_the_start_of_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    class Backend:
        reasons = Catalogue("mine", {"gone": Wording("{name} has gone", "{name} 已消失", whole=True)})

    plugin = registry.Plugin(name="mine", target="", backend=Backend())  # type: ignore[arg-type]
    monkeypatch.setattr(registry, "plugins", lambda: (plugin,))
    registry.reasons_of.cache_clear()
    try:
        said = say("of_target", why=Backend.reasons("gone", name="x"))
        assert explain_reason(said) == ("target: x has gone", "目标：x 已消失")
        assert is_whole(said)
    finally:
        registry.reasons_of.cache_clear()


@pytest.mark.parametrize("owner", CATALOGUES)
def test_each_code_has_both_languages_and_uses_all_its_arguments_in_both(owner: str) -> None:
    for code, wording in CATALOGUES[owner].items():
        assert code.startswith(f"{owner}." if owner else code)
        assert arguments_of(wording.en) == arguments_of(wording.zh), code
        assert wording.en, code
        plain = not re.search(r"[A-Za-z]", re.sub(r"\{.*?\}", "", wording.en))  # nothing but what it quotes
        assert plain or re.search(r"[\u4e00-\u9fff]", wording.zh), code


def _sources(root: Path) -> Iterator[tuple[Path, str, ast.Module]]:
    """Each module, and whose it is."""
    for path in sorted((root / "precision_debug").rglob("*.py")):
        yield path, "", house_numbers.parse(path)
    for owner in CATALOGUES:
        for path in sorted((root / "backends" / f"precision_debug_{owner}").rglob("*.py")) if owner else ():
            yield path, owner, house_numbers.parse(path)


def _makers(tree: ast.Module, owner: str) -> dict[str, str]:
    """What a module calls the makers of reasons, and whose catalogue each is."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[-1] == "reasons":
            ours = node.level == 0 or not owner
            found.update({alias.asname or alias.name: "" if ours else owner for alias in node.names
                          if alias.name == "say"})  # fmt: skip
    return found


def test_every_reason_that_is_given_is_in_the_catalogue_with_its_arguments(root: Path) -> None:
    used: dict[str, set[str]] = {owner: set() for owner in CATALOGUES}
    wrong = []
    for path, owner, tree in _sources(root):
        makers = _makers(tree, owner)
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in makers):
                continue
            place, whose = f"{path.relative_to(root)}:{node.lineno}", makers[node.func.id]
            first = node.args[0] if len(node.args) == 1 else None
            code = first.value if isinstance(first, ast.Constant) else None
            full = f"{whose}.{code}" if whose else code
            if not isinstance(code, str) or full not in CATALOGUES[whose]:
                wrong.append(f"{place}: no literal code of the catalogue")
                continue
            used[whose].add(str(full))
            given = {keyword.arg for keyword in node.keywords}
            if given != arguments_of(CATALOGUES[whose][str(full)].en):
                wrong.append(f"{place}: {code} is given {sorted(map(str, given))}")
    assert wrong == []
    unused = {owner: sorted(set(CATALOGUES[owner]) - used[owner] - _BY_CODE) for owner in CATALOGUES}
    assert unused == {owner: [] for owner in CATALOGUES}


def test_the_page_of_all_reasons_has_what_the_catalogues_say() -> None:
    from precision_debug.cli.doctor import PAGES

    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in PAGES["reasons"]().splitlines() if line.startswith("| `")]
    assert {len(row) for row in rows} == {5}
    told = [row[0].strip(" `") for row in rows]
    every = [CORE, *(backend.reasons for backend in registry.backends())]
    assert sorted(told) == sorted(code for catalogue in every for code in catalogue)


def test_reasons_of_rows_doubts_and_causes_say_what_to_do() -> None:
    for code in {**ROWS, **DOUBTS}:
        assert CORE[code].do, code
    assert all(cause.do and cause.do_zh for cause in CAUSES.values())


_BY_CODE = frozenset({*DOUBTS, *WORDINGS, "and_more"})
"""Doubts and causes, which are records with a code of their own."""


def _bare(node: ast.expr | None) -> bool:
    """Whether an expression is text that was written here, or holds some."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str)
    if isinstance(node, (ast.JoinedStr, ast.BinOp)):
        return isinstance(node, ast.JoinedStr) or _bare(node.left) or _bare(node.right)
    if isinstance(node, ast.IfExp):
        return _bare(node.body) or _bare(node.orelse)
    if isinstance(node, (ast.Tuple, ast.List)):
        return any(_bare(item.value if isinstance(item, ast.Starred) else item) for item in node.elts)
    return False


def test_no_reason_is_a_bare_string(root: Path) -> None:
    wrong = []
    for path, _, tree in _sources(root):
        if path.parent.name == "reasons" or path.name in ("codec.py", "words.py"):
            continue
        where = path.relative_to(root)
        for node in ast.walk(tree):
            if not isinstance(node, (ast.Call, ast.Assign, ast.AugAssign, ast.AnnAssign)):
                continue
            place = f"{where}:{node.lineno}"
            if isinstance(node, ast.Call):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if name == "Reason":
                    wrong.append(f"{place}: a Reason without a code")
                wrong += [f"{place}: {keyword.arg}=" for keyword in node.keywords
                          if keyword.arg in ("unseen", "reason", "notes") and _bare(keyword.value)]  # fmt: skip
                said = isinstance(node.func, ast.Attribute) and name in ("append", "extend", "insert")
                if said and "notes" in ast.unparse(node.func.value) and any(map(_bare, node.args)):
                    wrong.append(f"{place}: {ast.unparse(node)[:60]}")
            else:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = (getattr(one, "attr", getattr(one, "id", "")) for one in targets)
                if any(name.strip("_") in ("notes", "unseen") for name in names) and _bare(node.value):
                    wrong.append(f"{place}: {ast.unparse(node)[:60]}")
    assert wrong == []


def test_people_read_their_language_and_programs_english() -> None:
    base = SaveBaseline()
    check = AssertClose(base, atol=1e-3, rtol=0)
    base("Relu", "fused", np.ones(4))
    base("Relu", "a", np.zeros(4))
    check("Relu", "a", np.array([0, 1, math.nan, 0]))
    check("Relu", "new", np.zeros(2))
    report = check.report()
    plain = [next(c for c in list_columns(report) if c.key == "reason").get(row) for row in report.rows]
    shown = [
        next(c for c in list_columns_for_people(report, "zh", STATUS_NAME) if c.key == "reason").get(row)
        for row in report.rows
    ]
    assert plain == [str(row.reason) for row in report.rows]
    assert [row.reason.code for row in report.rows] == ["gone", "elements_and", "no_such_name"]
    assert shown == [
        "目标图中没有该张量", "4 个元素中有 2 个，目标中有 NaN", "基线中没有同名张量",
    ]
    said = next(section for section in summarise(report).sections if section.key == "uncompared")
    assert {line[0].text.zh for line in said.lines} == {"目标图中没有该张量", "基线中没有同名张量"}
    assert reason_text(report.notes[0], "zh").startswith("两侧均由脚本中的 hook 观测")


def test_what_to_do_is_said_in_chinese_too() -> None:
    """Nearly all of it: a backend of another wheel has its own, and the page shows the English one then."""
    said = {wording.do for catalogue in CATALOGUES.values() for wording in catalogue.values() if wording.do}
    assert len(said - set(WHAT_TO_DO)) <= len(said) / 20, sorted(said - set(WHAT_TO_DO))
    assert all(re.search("[\u4e00-\u9fff]", text) for text in WHAT_TO_DO.values())


_PLURALS = (
    "operators|tensors|nodes|weights|layers|samples|inputs|outputs|elements|modules|casts|marks|kernels|builds|steps"
    "|iterations|types|engines|regions|parameters|bytes|places|rankings|artefacts"
)
_OF_ONE = re.compile(rf"\b1 (?:(?!of |in |with |between |became |the )[a-z-]+ ){{0,2}}(?:{_PLURALS})\b")


@pytest.mark.parametrize("owner", ["", *(backend.name for backend in registry.backends())])
def test_one_of_anything_is_not_many(owner: str) -> None:
    """As seen: "1 tensors are not in the table", "1 of 1 operators still run"."""
    catalogue = CORE if not owner else next(one for one in registry.backends() if one.name == owner).reasons
    wrong = {}
    for code, wording in catalogue.items():
        args = {name: _Once(1) for name in arguments_of(wording.en)}
        said = fill_template(wording.en, args, ", ", str)  # type: ignore[arg-type]
        if found := _OF_ONE.search(said):
            wrong[code] = found[0]
    assert {code: text for code, text in wrong.items() if code.rpartition(".")[2] not in _NEVER_ONE} == {}


class _Once(int):
    """1 in every format that a template asks for."""

    def __format__(self, spec: str) -> str:
        return "1"


_NEVER_ONE = {"polygraphy_outputs", "polygraphy_others", "why_born", "casts_kept", "many_ways"}
"""What is said of several alone, or where the number is a name or a size."""


def _fill_way(template: str) -> str:
    words = {"name": "q, k", "shape": "[1, 3]", "type": "bfloat16", "number": "1.2e-07"}
    args = {one: words.get(one, "3") for one in re.findall(r"{([a-z]+)}", template)}
    return way(template, **{one: "exact" if one in ("how", "more") else value for one, value in args.items()})


@pytest.mark.parametrize("template", WAYS)
def test_a_way_is_known_again_by_its_own_words(template: str) -> None:
    text = _fill_way(template)
    zh = explain_way(text).zh
    assert not re.search("[A-Za-z]", re.sub(r"q, k|bfloat16|float32|rank|1.2e-07", "", zh)), zh
    for behind in ("{how}; inputs agree, the output does not", "{how}, confidence {number}"):
        assert zh in explain_way(way(behind, how=text, number="0.9876")).zh
    assert sorted(re.findall(r"{[a-z]+}", template)) == sorted(re.findall(r"{[a-z]+}", WAYS[template]))


def test_only_what_has_its_chinese_is_a_way() -> None:
    """mypy takes nothing else for one; what would pass it by is looked for here: a text that is called one, and a
    template that no test may ever come to."""
    with pytest.raises(KeyError):
        way("by magic")
    assert explain_way("by magic").zh == "by magic"
    root = Path(precision_debug.__file__).parents[1]
    files = [path for folder in ("precision_debug", "backends") for path in (root / folder).rglob("*.py")]
    texts = {path.relative_to(root).as_posix(): path.read_text() for path in files}
    assert [path for path, text in texts.items() if re.search(r"\b(Way|WAYS)[(\[]", text)] == [
        "precision_debug/reasons/ways.py"
    ]
    readers = [path for path, text in texts.items() if "read_way(" in text]
    assert sorted(readers) == ["precision_debug/reasons/ways.py", "precision_debug/report/from_journal.py"]
    asked = {one for text in texts.values() for one in re.findall(r'\bway\(\s*"([^"]*)"', text)}
    assert asked - WAYS.keys() == set()
