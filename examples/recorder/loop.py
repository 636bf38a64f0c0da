"""Records a loop of one's own, two tokens of it, into output/loop."""

from __future__ import annotations

import numpy as np

from precision_debug.recording.recorder import Recorder  # or: from recorder import Recorder, beside your program

record = Recorder("output/loop")
for token in range(2):
    x = np.random.default_rng(token).normal(size=(4, 16)).astype(np.float32)
    record("Input", "x", x)
    record("Relu", "act", np.maximum(x, 0))
    record.step()
