"""What this backend says of tensors and runs, in English and Chinese."""

from __future__ import annotations

from precision_debug.reasons import Catalogue, Wording

__all__ = ["REASONS", "say"]

_HOME = "Nothing: its numbers are compared in another row, or there is nothing to compare."
_ROUND = "Look at the tensors around it."

REASONS = Catalogue("openvino", {
    # why a tensor is not seen
    "disturbs": Wording(
        "OpenVINO would compute it in another way if it were shown", "若显示它，OpenVINO 会以另一种方式计算", _ROUND
    ),
    "inside": Wording(
        "it lies inside {kind} {name}, whose layers OpenVINO does not tell",
        "位于 {kind} {name} 内部，OpenVINO 不说明其中的层", _ROUND,
    ),
    "constant": Wording(
        "OpenVINO leaves it out: there it is a constant, or nothing reads it",
        "OpenVINO 将其省去：在那里它是常量，或没有算子读取它", _HOME, whole=True,
    ),
    "not_entered": Wording(
        "in a branch or loop body that this run did not enter", "位于本次运行未进入的分支或循环体内",
        "Give an input with which the branch is taken.", whole=True,
    ),
})  # fmt: skip
"""Every reason that the backend gives."""

say = REASONS
