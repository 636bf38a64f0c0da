"""precision_debug check M [M2]: faults that the file, or two files together, prove without a run.

In one file: what ONNX's own checker refuses (operators that do not exist, types and shapes that do not fit), constants
that are NaN or beyond the target's type, impossible scales and zero points, a tensor that is read with another
scale or zero point than it was quantised with, weights beyond their quantisation range, and int32 biases that were
clipped or whose scale is not scale_x times scale_w. Between two files: attributes and constants that differ, and batch
norms that were folded wrongly. Exit status 1 if something is found.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...claims import Verdict, claims_of_files, exit_status_of, verdict_of_files
from ...cli import polygraphy
from ...cli.parser import choose_language, make_flag, make_verb_parser, parse
from ...errors import ModelError, UsageError
from ...report.words import explain_reason
from ...run.locked_folder import make_scratch_folder
from ...safety.untrusted import make_visible

__all__ = ["run"]

SUMMARY = "faults that an .onnx file, or two files together, prove without a run"
SUMMARY_ZH = ".onnx 文件自身能证明的错误，或两个文件互相证明的不同，无需运行"

DESCRIPTION_ZH = """precision_debug check M [M2]：文件自身能证明的错误，或两个文件互相证明的不同，无需运行。

ONNX 自带检查器拒绝的内容（不存在的算子、不相符的类型与形状）、为 NaN 的常量、不可能正确的 scale 与零点、
读取所用的 scale 或零点与量化时不同的张量、
被截断或 scale 不等于 scale_x×scale_w 的 int32 偏置、超出其量化范围的权重、超出目标类型的常量；
对两个文件：不同的属性与常量，以及折叠错误的 batch norm。
有发现时退出码为 1。
"""


def run(arguments: Sequence[str]) -> int:
    """Print one line a finding; 0 where there is none and all was looked at, else 1."""
    if foreign := polygraphy.answer_polygraphy_words(["check", *arguments]):
        raise UsageError(foreign)
    args = parse(make_verb_parser("check", __doc__, DESCRIPTION_ZH, _FLAGS), arguments)
    for path in filter(None, (args.model, args.second)):
        if not path.lower().endswith(".onnx"):
            raise ModelError(
                "is not an .onnx file", where=path, hint="only .onnx files can be read without their framework"
            )
    from ...onnx.model import read_model
    from ...onnx.provable import prove_faults
    from ...reasons import Text, list_some, say
    from .compared_files import compare_files, count_looked_at
    from .standard import check_by_standard

    paths = [path for path in (args.model, args.second) if path]
    models = [read_model(path) for path in paths]
    with make_scratch_folder() as (folder, _):
        standards = [check_by_standard(model, folder) for model in models]
    faults = list(dict.fromkeys(one for model in models for one in prove_faults(model, to=args.to, int32=args.int32)))
    if not faults:  # else the checker says the same of a broken graph in other words
        faults = list(dict.fromkeys(one for standard in standards for one in standard.faults))
    differing = compare_files(*models) if args.second else None
    looked = [count_looked_at(model) for model in models]
    names = list(dict.fromkeys(name for one in looked for name in one.unread))
    unread = [say("unread_constants", count=len(names), names=list_some(names))] if names else []
    empty = [path for path, one in zip(paths, looked, strict=True) if not one.operators]
    unread += [say("nothing_to_look_at", file=path) for path in empty]
    unread += [one for standard in standards for one in standard.unknown]
    claims = claims_of_files(faults, differing, unread, sum(one.constants for one in looked))
    verdict = verdict_of_files(claims, two=bool(args.second))
    language = choose_language(args.lang)
    told = [say("looked_at", constants=one.constants, operators=one.operators, graphs=one.graphs) for one in looked]
    told += [one for standard in standards for one in standard.told]
    for reason in (*faults, *(differing or ()), *unread, *told):
        print(make_visible(explain_reason(reason).of(language)))
    if verdict is Verdict.PASS:
        print(Text("nothing is wrong in what a file can prove", "文件所能证明的范围内没有问题").of(language))
    return exit_status_of([verdict])


_FLAGS = (
    make_flag("model", "an .onnx file", "一个 .onnx 文件", metavar="M"),
    make_flag("second", "another one, converted from it", "由它生成的另一个文件", metavar="M2", nargs="?"),
    make_flag("--to", "the target's floating-point type", "目标保存浮点数所用的类型", choices=("", "float16")),
    make_flag("--int32", "the target stores integers in 32 bits (TensorRT)", "目标以 32 位保存整数（TensorRT）",
         action="store_true"),
)  # fmt: skip
