"""What this backend says of tensors and runs, in English and Chinese."""

from __future__ import annotations

from precision_debug.reasons import Catalogue, Wording

__all__ = ["REASONS", "say"]

_HOME = "Nothing: its numbers are compared in another row, or there is nothing to compare."
_INSIDE = "Look at what the loop or branch gives."
_READERS = "Look at the tensors that are made of it."

REASONS = Catalogue("paddle", {
    # why a tensor is not seen
    "not_entered": Wording(
        "in a branch or loop body that this run did not enter", "位于本次运行未进入的分支或循环体内",
        "Give an input with which the branch is taken.", whole=True,
    ),
    "fused": Wording(
        "it cannot be fetched without changing the fusion around it", "取出它会改变周围的融合", _HOME, whole=True
    ),
    "changed": Wording(
        "the passes changed the numbers around it, and it was fused away or cannot be fetched",
        "优化 pass 改变了其周围的数值，它已被融合或无法取出", _HOME, whole=True,
    ),
    "untried": Wording(
        "the search for marks ended before it (raise --option mark_builds)",
        "标记搜索在它之前结束（可增大 --option mark_builds）", "Raise --option mark_builds.",
    ),
    "nested": Wording(
        "it lies inside a control-flow block, where it cannot be fetched", "位于控制流块内，无法取出", _INSIDE
    ),
    "recording_changes": Wording(
        "it lies inside a control-flow block, and recording it there changes what the program computes",
        "位于控制流块内，而在其中录制它会改变程序的计算", _INSIDE,
    ),
    "in_a_body": Wording(
        "it lies inside a control-flow block, which Paddle's hook does not enter",
        "位于控制流块内，Paddle 的 hook 不进入", _INSIDE,
    ),
    "method": Wording(
        "a tensor's own method made it (x + y), which Paddle shows to nobody",
        "由张量自身的方法（x + y）生成，Paddle 不提供观测", _READERS,
    ),
    "rewritten": Wording(
        "a later operator writes over it, so that it cannot be fetched", "后面的算子会覆盖它，无法取出", _READERS
    ),
    "overwritten": Wording(
        "an operator that works in place wrote over it before it could be fetched", "取出之前已被原地算子覆盖",
        _READERS,
    ),
})  # fmt: skip
"""Every reason that the backend gives."""

say = REASONS
