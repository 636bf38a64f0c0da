"""Small mistakes, written by hand, in the modules that decide; each should turn a quick test of its module red.

``python tests/mutants.py [NAME…]`` applies each in a copy of the tree, runs the module's own quick tests, and prints
the table. Each names a place in the syntax tree, so that another layout makes none stale. Names choose modules
("judge"). It takes some minutes, so nothing runs it but a person; tests/test_mutants.py checks that each still applies.
"""

from __future__ import annotations

import ast
import functools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

JUDGE, BORN = "precision_debug/numbers/judge.py", "precision_debug/numbers/born.py"
ALIGN = "precision_debug/pairing/align.py"
PIPELINE, CULPRITS = "precision_debug/run/pipeline.py", "precision_debug/explain/culprits.py"
CRITERIA = "precision_debug/explain/criteria.py"
UNREPEATED = "precision_debug/explain/broken_outputs.py"
OPEN_PAIR, ONE_SAMPLE = "precision_debug/run/open_pair.py", "precision_debug/run/samples.py"
COMPARING = "precision_debug/run/open_pair.py"
CLAIMS, FILES = "precision_debug/claims/of_report.py", "precision_debug/claims/claim.py"
FOUND, ASKED = "precision_debug/claims/of_search.py", "precision_debug/claims/as_asked.py"
STANDARD, CHECK = "precision_debug/products/tools/standard.py", "precision_debug/products/tools/check.py"

TESTS = {
    JUDGE: "tests/test_judge.py", BORN: "tests/test_judge.py", ALIGN: "tests/test_align.py",
    PIPELINE: "tests/test_pipeline.py", OPEN_PAIR: "tests/test_pipeline.py", ONE_SAMPLE: "tests/test_pipeline.py",
    COMPARING: "tests/test_pipeline.py",
    CULPRITS: "tests/test_culprits.py", CRITERIA: "tests/test_culprits.py", UNREPEATED: "tests/test_culprits.py",
    CLAIMS: "tests/test_claims_made.py", FILES: "tests/test_claims_made.py", ASKED: "tests/test_claims_made.py",
    FOUND: "tests/test_search_claims.py", STANDARD: "tests/test_check_whole.py", CHECK: "tests/test_check_whole.py",
}  # fmt: skip

MUTANTS: tuple[tuple[str, str, str, str], ...] = (
    (BORN, "", "MASK = 1e18", "MASK = 1e30"),
    (BORN, "", "CLAMPED = 1e4", "CLAMPED = 1e5"),
    (BORN, "", "CLAMPED = 1e4", "CLAMPED = 1e2"),
    (JUDGE, "", "HIDDEN = 1e-2", "HIDDEN = 5e-2"),
    (JUDGE, "", "HIDDEN = 1e-2", "HIDDEN = 5e-3"),
    (JUDGE, "judge_row", "not tolerance.given", "True"),
    (JUDGE, "judge_row", "fail_non_finite(row) if validate else row", "row"),
    (JUDGE, "decide_status", "Status.FAIL, reason", "(Status.INCONCLUSIVE, reason)"),
    (JUDGE, "decide_status", "not comparison.base.elements", "False"),
    (JUDGE, "decide_status", "(Status.INCONCLUSIVE, hidden)", "(Status.PASS, hidden)"),
    (JUDGE, "fail_non_finite", "row.status is Status.FAIL", "False"),
    (JUDGE, "as_expected", "not numbers.shapes_match", "False"),
    (JUDGE, "as_expected", "is_broken(numbers)", "False"),
    (JUDGE, "as_expected", '"float" not in numbers.base.dtype', "False"),
    (JUDGE, "as_expected", "numbers.mismatched == 0 == numbers.max_abs", "numbers.mismatched == 0"),
    (JUDGE, "as_expected", "error <= allowed", "error < allowed"),
    (JUDGE, "as_expected", "_is_mask_alone(row, numbers, allowed)", "False"),
    (JUDGE, "_is_mask_alone", "max(own.rel_l2, own.inherited)", "min(own.rel_l2, own.inherited)"),
    (JUDGE, "_is_mask_alone", "own.born_inf", "False"),
    (BORN, "is_broken", "numbers.apart != abs(more)", "numbers.apart < abs(more)"),
    (BORN, "is_broken", "numbers.base.nan != numbers.target.nan", "False"),
    (BORN, "is_broken", "more < 0", "more > 0"),
    (BORN, "may_be_mask", "_ONE_NUMBER if end > 0 else _TWO_MASKS", "_TWO_MASKS"),
    (JUDGE, "_passes", "comparison.required_atol == math.inf", "comparison.required_atol is not None"),
    (
        JUDGE, "_passes",
        'tolerance.check_error_stat != "elemwise" and comparison.mean_abs is not None',
        "tolerance.check_error_stat == 'mean'",
    ),
    (JUDGE, "_explain_empty_pass", "tolerance.atol <= rms", "tolerance.atol < 10 * rms"),
    (JUDGE, "_explain_empty_pass", "max(HIDDEN, tolerance.rtol)", "HIDDEN"),
    (
        JUDGE, "_judge_by_statistic",
        "absolute <= tolerance.atol or relative <= tolerance.rtol",
        "absolute <= tolerance.atol and relative <= tolerance.rtol",
    ),
    (JUDGE, "_explain_special_values", "of_base and of_target", "False"),
    (ALIGN, "Alignment.partner", "if pair is not None:\n    return pair", "pass"),
    (ALIGN, "Alignment.partner", "pair.base.name + target_name[len(name) :]", "pair.base.name"),
    (ALIGN, "strip_iteration", "_TURN.fullmatch(iteration)", "True"),
    (
        ALIGN, "_Pairing.__init__",
        "if meta.origin:\n    self.by_source.setdefault(meta.origin, meta)",
        "if not meta.origin:\n    self.by_source.setdefault(meta.origin, meta)",
    ),
    (ALIGN, "_Pairing.__init__", "self.by_source.update(self.by_name)", "pass"),
    (ALIGN, "_Pairing.by_rename_map", "old not in self.by_name", "False"),
    (ALIGN, "_Pairing.claim", "meta.name in self.pairs", "False"),
    (ALIGN, "_Pairing.claim", "self.taken[base.name]", "base.name"),
    (ALIGN, "_Pairing.claim", "self.taken[base.name] = meta.name", "pass"),
    (ALIGN, "_Pairing.by_matches", "matches.missing", "{}"),
    (
        ALIGN, "_Pairing.by_origin",
        "self.claim(meta, self.by_source.get(meta.origin))",
        "self.claim(meta, self.by_source.get(meta.origin), 'graph metadata')",
    ),
    (ALIGN, "_Pairing.by_equal_name", "not meta.unseen", "True"),
    (ALIGN, "_Pairing.by_equal_name", "not fits(base.op_type, meta.op_type)", "False"),
    (ALIGN, "_Pairing.by_quantised_form", "not _is_raw_integers(meta, self.by_name.get(name))", "True"),
    (ALIGN, "align", "not strangers", "True"),
    (ALIGN, "_Pairing.past_dropped_clamps", "fits(before.op_type, meta.op_type)", "True"),
    (
        ALIGN, "_Pairing.past_dropped_clamps",
        "{name: text for name, text in refused.items() if name not in self.pairs}",
        "{name: text for name, text in refused.items()}",
    ),
    (ALIGN, "_is_raw_integers", '"float" in base.dtype', "True"),
    (ALIGN, "_is_raw_integers", "not meta.view", "True"),
    (ALIGN, "_list_quantised_forms", "item[:2]", "item[1:2]"),
    (OPEN_PAIR, "_announce_plan", "paired if names is None else names & paired", "paired"),
    (
        OPEN_PAIR, "_announce_plan",
        "{pair.base.name for pair in alignment.pairs.values() if not pair.target.unseen}",
        "{pair.base.name for pair in alignment.pairs.values()}",
    ),
    (PIPELINE, "_compare_either_way", "work.journal.write(events.Again())", "pass"),
    (ONE_SAMPLE, "OneSample._finished", "raise Enough(row)", "pass"),
    (COMPARING, "Comparing.explains", "not self.alone", "True"),
    (PIPELINE, "_record_late_tensors", "both.base.announce(both.seen[0])", "pass"),
    (OPEN_PAIR, "refuse_lockstep", "together", "True"),
    (OPEN_PAIR, "find_renames", "new != old and new in theirs and old in ours", "new != old"),
    (
        OPEN_PAIR, "find_renames",
        "{new: old for new, old in spec.renames.items() if feed_set.names.get(new) != old}",
        "{new: old for new, old in spec.renames.items()}",
    ),
    (OPEN_PAIR, "find_renames", "{**both, **own}", "{**own, **both}"),
    (OPEN_PAIR, "runs_together", "spec.lockstep and not able", "False"),
    (OPEN_PAIR, "runs_together", "able if spec.lockstep is None else spec.lockstep", "able"),
    (
        OPEN_PAIR, "runs_together",
        "side.mode is None or side.mode.concurrent", "side.mode is not None and side.mode.concurrent",
    ),
    (OPEN_PAIR, "select_marked", "spec.marks_between is None", "True"),
    (PIPELINE, "_run_parts", "len(part) == 1", "len(part) == 2"),
    (PIPELINE, "_run_parts", "number == 0", "True"),
    (CRITERIA, "", "FAR = 8.0", "FAR = 16.0"),
    (CRITERIA, "", "FAR = 8.0", "FAR = 4.0"),
    (CRITERIA, "", "HALF = 0.5", "HALF = 0.7"),
    (CRITERIA, "", "PART = 0.15", "PART = 0.3"),
    (CRITERIA, "", "STRONG = SEVERAL * FAR", "STRONG = SEVERAL"),
    (CRITERIA, "", "MATTERS = 0.02", "MATTERS = 0.2"),
    (CRITERIA, "", "MATTERS = 0.02", "MATTERS = 0.002"),
    (CULPRITS, "find_first_failing", "not row.non_finite", "True"),
    (CULPRITS, "find_first_failing", "is_non_finite_in_target_alone(row)", "False"),
    (CULPRITS, "is_non_finite_in_target_alone", "not may_be_mask(numbers.base)", "True"),
    (CULPRITS, "is_non_finite_in_target_alone", "numbers.target.nan > numbers.base.nan", "numbers.target.nan"),
    (CULPRITS, "list_early_suspects", "growth = max(growth, 1e6)", "pass"),
    (CULPRITS, "list_candidates.score", "-min(units, 1e9) if units > FAR else 0.0", "-min(units, 1e9)"),
    (CULPRITS, "list_candidates.score", "-born", "0.0"),
    (CULPRITS, "_is_innocent", "not more", "True"),
    (CULPRITS, "_is_innocent", "subject.two_files", "True"),
    (CULPRITS, "_is_innocent", "row.comparison.identical", "False"),
    (CULPRITS, "_rank_culprits", "bool(introduced.flips)", "False"),
    (
        CULPRITS, "_rank_culprits",
        "born and effect.non_finite > 0 and (sink.is_output or not any(one.is_output for one in sinks))",
        "effect.non_finite > 0 and (sink.is_output or not any(one.is_output for one in sinks))",
    ),
    (CULPRITS, "_rank_culprits", "sink.name not in looked", "False"),
    (CRITERIA, "", "DROP = 3.0", "DROP = 2.0"),
    (CULPRITS, "rank", "1 / DROP", "2 / DROP"),
    (CULPRITS, "_rank_culprits", "subject.same_steps and not far and not poisons", "False"),
    (CULPRITS, "_rank_culprits", "poisons or certain or share >= enough or name in few", "certain or share >= enough"),
    (CULPRITS, "_rank_culprits", "not sink.is_output and any(one.is_output for one in sinks)", "False"),
    (CULPRITS, "_rank_culprits.place", "round(min(1.0, share), 1)", "round(share, 3)"),
    (CULPRITS, "_merge_iterations", "(share, shared[stemmed])", "(share, share)"),
    (CULPRITS, "_merge_iterations", "e.share > 0.1 * most[1]", "e.share >= most[1]"),
    (CULPRITS, "find_largest_growth", "growth > SEVERAL", "growth > 2 * SEVERAL"),
    (CULPRITS, "find_largest_growth", "0.3 * error", "0.5 * error"),
    (
        CULPRITS, "_group_amplified_together",
        "[other for other, part in group if part < PART]", "[other for other, part in group]",
    ),
    (UNREPEATED, "find_hidden_overflow", "limit < largest < MASK", "limit < largest"),
    (UNREPEATED, "find_hidden_overflow", "limit > MASK", "False"),
    (CULPRITS, "_keep_one_of_a_switch", "len(products) < 2", "len(products) < 3"),
    (CULPRITS, "rank", "first not in subject.row_of", "True"),
    (CLAIMS, "_claim_ran_as_asked", "yield from (_claim_of_doubt(code, doubt) for doubt in told)", "pass"),
    (CLAIMS, "_claim_ran_as_asked",
    "yield from (leave_claim_open(code, doubt) for doubt in doubt_unseen_precision(report))", "pass"),
    (CLAIMS, "_claim_outputs_compared", "report.spec.without_outputs", "False"),
    (CLAIMS, "_claim_outputs_compared", "_list_undelivered_outputs(report)", "[]"),
    (CLAIMS, "_claim_outputs_compared", "_list_outputs_kept_inside(report)", "[]"),
    (CLAIMS, "_claim_outputs_compared",
    "_kind_of_numbers(numbers.base.dtype) != _kind_of_numbers(numbers.target.dtype)", "False"),
    (
        CLAIMS, "_claim_outputs_compared",
        "all(_tells_nothing(row, below) for row in told)",
        "False",
    ),
    (CLAIMS, "_claim_outputs_compared", "not row.comparison.base.elements", "False"),
    (CLAIMS, "_claim_outputs_compared", "{report.baseline.backend, report.target.backend} <= _OWN_PROGRAM", "True"),
    (CLAIMS, "_list_undelivered_outputs", "name not in of_target and name not in missing", "False"),
    (CLAIMS, "_list_undelivered_outputs", "name not in of_base", "False"),
    (
        CLAIMS, "_list_outputs_kept_inside",
        "returned and row.name in declared and row.comparison is not None"
        " and not returned & {row.name, row.target_name or row.name}",
        "False",
    ),
    (CLAIMS, "_tells_nothing", "row.name in below", "False"),
    (CLAIMS, "_holds_nothing", "numbers.min == numbers.max == 0", "False"),
    (CLAIMS, "_holds_nothing", "numbers.nan + numbers.inf == numbers.elements", "False"),
    (CLAIMS, "_holds_nothing", '"float" in numbers.dtype', "True"),
    (CLAIMS, "_claim_tensors_seen", "whole", "True"),
    (CLAIMS, "_claim_all_read", "yield from _claim_doubts_of_sides(report, code)", "pass"),
    (CLAIMS, "_claim_all_read", "stopped is not None", "False"),
    (CLAIMS, "_claim_all_read", "sets.read < asked", "False"),
    (CLAIMS, "_claim_all_read", 'sets.given if "one_recorded" in codes else sets.asked', "sets.asked"),
    (CLAIMS, "_claim_all_read", "one.min == one.max == 0", "False"),
    (CLAIMS, "_claim_all_read", 'any(row.op_type == "Input" for row in report.compared)', "False"),
    (CLAIMS, "_claim_all_read", 'reason.code == "dump_skipped"', "False"),
    (CLAIMS, "_claim_sides_unchanged", "yield from _claim_doubts_of_sides(report, code)", "pass"),
    (CLAIMS, "_claim_unseen_inputs", "yield from _claim_doubts_of_sides(report, code)", "pass"),
    (CLAIMS, "_claim_criterion", "report.compared and unsure", "False"),
    (CLAIMS, "_claim_within_tolerance", "_fails(report, failed)", "False"),
    (CLAIMS, "_claim_outputs_finite", "min(base.inf, target.inf)", "0"),
    (CLAIMS, "_claim_outputs_finite", "min(base.nan, target.nan)", "0"),
    (CLAIMS, "_claim_repeatable", 'yield from _claim_doubts_of_sides(report, "repeatable")', "pass"),
    (ASKED, "doubt_unseen_precision", "largest < (promise.rounding * _UNSEEN if inside else _NOISE)", "False"),
    (FILES, "_claim_on_files", "reason.code.startswith(_UNPROVEN)", "False"),
    (FILES, "_claim_on_files", 'yield from (refute_claim("files_sound", _as_doubt(reason)) for reason in faults)',
    "pass"),
    (FILES, "_claim_on_files",
    'yield from (leave_claim_open("constants_read", _as_doubt(reason)) for reason in unread)', "pass"),
    (FILES, "verdict_of_files", "_NEEDED_OF_TWO if two else _NEEDED", "_NEEDED"),
    (FOUND, "_is_answered", "0 < fix.held_out == fix.held", "True"),
    (
        FOUND, "_is_answered",
        'fix is None or fix.state != "found" or claim.why is None',
        "fix is None or claim.why is None",
    ),
    (FOUND, "_is_answered", 'claim.why.values.get("name") in kept', "True"),
    (FOUND, "_claim_held_out", "fix.held < fix.held_out", "False"),
    (FOUND, "_claim_handed_over", "fix.artefacts and not good", "False"),
    (FOUND, "_set_found", 'fix.state == "unfinished"', "False"),
    (FOUND, "_claim_on_search", "fix is None", "False"),
    (FOUND, "verdict_of_search", "(*_NEEDED, *_NEEDED_BESIDE)", "_NEEDED"),
    (STANDARD, "check_by_standard", "_check_operators_exist(light)", "()"),
    (STANDARD, "check_by_standard", "_check_declared_twice(light)", "()"),
    (STANDARD, "check_by_standard", "_check(light, folder)", "None"),
    (
        STANDARD, "check_by_standard",
        "onnx.shape_inference.infer_shapes(light, check_type=True, strict_mode=True)",
        "None",
    ),
    (STANDARD, "check_by_standard", "_make_dense(light)", "None"),
    (STANDARD, "_check_newer_opsets", "proto.ir_version > onnx.IR_VERSION", "False"),
    (STANDARD, "_check_newer_opsets", "version > _newest_opsets().get(domain, version)", "False"),
    (STANDARD, "_check_declared_twice", "(graph.input, graph.output)", "(graph.input,)"),
    (CHECK, "run", "unread += [one for standard in standards for one in standard.unknown]", "pass"),
    (CHECK, "run", "not faults", "False"),
)  # fmt: skip


def applied(text: str, place: str, before: str, after: str) -> str:
    """The module's text with one node of its syntax tree changed, whatever it is formatted like.

    place: the qualified name of the function or class that holds it, "" for the module's own lines. before: the node,
    an expression or a statement; after: what stands there instead, "pass" for nothing. Raises ValueError where place
    does not hold exactly one such node: the module has changed.
    """
    wanted = ast.parse(before).body[0]
    wanted = wanted.value if isinstance(wanted, ast.Expr) and after != "pass" else wanted
    looked_for = ast.dump(wanted)
    found = [node for node in nodes_of(text, place) if type(node) is type(wanted) and _dumped(node) == looked_for]
    if len(found) != 1:
        raise ValueError(f"{len(found)} times in {place or 'the module'}: {before!r}")
    return replaced(text, found[0], after)


def replaced(text: str, node: ast.stmt | ast.expr, after: str) -> str:
    """The text with other words in a node's place: an expression in parentheses, a statement as far in as it was."""
    lines = text.encode().splitlines(keepends=True)  # columns are bytes
    ends = (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)
    begin, end = (sum(map(len, lines[: line - 1])) + column for line, column in ends)
    is_statement = isinstance(node, ast.stmt)
    told = after.replace("\n", "\n" + " " * node.col_offset) if is_statement else f"({after})"
    whole = b"".join(lines)
    return (whole[:begin] + told.encode() + whole[end:]).decode()


def nodes_of(text: str, place: str) -> list[ast.stmt | ast.expr]:
    """Statements and expressions of a function or class, or those that the module itself begins with."""
    scope: ast.AST = _tree(text)
    if not place:
        return [node for node in ast.iter_child_nodes(scope) if isinstance(node, ast.stmt)]
    for name in place.split("."):
        named = [node for node in ast.walk(scope) if getattr(node, "name", None) == name and isinstance(node, ast.stmt)]
        if not named:
            raise ValueError(f"nowhere: {place}")
        scope = named[0]
    return [node for node in ast.walk(scope) if isinstance(node, (ast.stmt, ast.expr))]


@functools.cache
def _tree(text: str) -> ast.Module:
    return ast.parse(text)


_dumped = functools.cache(ast.dump)  # of nodes of these trees, which stay


def main(wanted: list[str]) -> None:
    root = Path(__file__).resolve().parents[1]
    chosen = [one for one in MUTANTS if not wanted or any(name in one[0] for name in wanted)]
    killed: dict[str, list[bool]] = {}
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "copy")
        shutil.copytree(root, copy, ignore=shutil.ignore_patterns(".git", "output", "__pycache__", ".*_cache"))
        print("| module | place | before | after | killed | s |\n|---|---|---|---|---|---:|")
        for tests in dict.fromkeys(TESTS[path] for path, *_ in chosen):
            _red(copy, tests, expected=False)
        for path, place, before, after in chosen:
            text = (copy / path).read_text(encoding="utf-8")
            begun = time.monotonic()
            try:
                (copy / path).write_text(applied(text, place, before, after), encoding="utf-8")
                dead = _red(copy, TESTS[path], expected=True)
            finally:
                (copy / path).write_text(text, encoding="utf-8")
            killed.setdefault(path, []).append(dead)
            words = (" ".join(one.split())[:60].replace("|", "\\|") for one in (before, after))
            cells = [Path(path).stem, place, *words]
            took = time.monotonic() - begun
            print(f"| {' | '.join(cells)} | {'yes' if dead else '**no**'} | {took:.0f} |", flush=True)
    every = [dead for found in killed.values() for dead in found]
    for path, found in killed.items():
        print(f"{Path(path).stem}: {sum(found)} of {len(found)}")
    print(f"all: {sum(every)} of {len(every)} ({sum(every) / len(every):.0%})")


def _red(copy: Path, tests: str, *, expected: bool) -> bool:
    """Whether a module's tests fail. expected: no error is one that the tests must not have had before."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", tests]
    env = {"PYTHONPATH": f"{copy}:{copy / 'backends'}", "PYTHONDONTWRITEBYTECODE": "1", "PRECISION_DEBUG_EXAMPLES": "3"}
    done = subprocess.run(
        command, check=False, cwd=copy, env={**os.environ, **env}, capture_output=True, text=True
    )
    if done.returncode and not expected:
        raise SystemExit(f"{tests} fails without a mutant:\n{done.stdout[-2000:]}")
    return done.returncode != 0


if __name__ == "__main__":
    main(sys.argv[1:])
