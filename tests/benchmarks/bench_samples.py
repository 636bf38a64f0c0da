"""Many samples: time and memory as they grow, against bare runs of the engines; and what merging shards costs.

python tests/benchmarks/bench_samples.py resnet [SAMPLES]     ResNet-50 (examples/resnet), ort_int8, one process
python tests/benchmarks/bench_samples.py small [SAMPLES]      digits, one image a sample
python tests/benchmarks/bench_samples.py ray [SAMPLES [MODE [IMAGE]]]     ResNet-50, one process and a Ray cluster
python tests/benchmarks/bench_samples.py merge                bytes and time of a shard, and the model of scaling
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
FEEDS = """
import resource, sys, time
import numpy as np
SHAPE, COUNT, NAME, LOG = {shape!r}, {count}, {name!r}, {log!r}
PASSES = []
def load_data():
    PASSES.append(0)
    began = time.perf_counter()
    for number in range(COUNT):
        if len(PASSES) > 1 and number % max(1, COUNT // 20) == 0:
            rss = int(open("/proc/self/statm").read().split()[1]) * 4096
            with open(LOG, "a") as file:
                file.write(f"{{number}} {{time.perf_counter() - began:.3f}} {{rss}}\\n")
        yield {{NAME: np.random.default_rng(number).random(SHAPE, dtype=np.float32)}}
"""


def run(model: Path, name: str, shape: tuple[int, ...], count: int, mode: str, folder: Path) -> list[list[float]]:
    """Compare; returns (samples, seconds, bytes of memory) on the way."""
    log = folder / "log.txt"
    script = folder / "feeds.py"
    script.write_text(FEEDS.format(shape=shape, count=count, name=name, log=str(log)))
    command = [sys.executable, "-m", "precision_debug", "--model_file", str(model), "--run_mode", mode, "--inputs"]
    command += [str(script), "--explain", "off", "--quiet", "--output", str(folder / "out.json")]
    begun = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, check=False)
    print(f"status {done.returncode}, {time.perf_counter() - begun:.1f} s in all")
    return [[float(part) for part in line.split()] for line in log.read_text().splitlines()]


def bare(model: Path, name: str, shape: tuple[int, ...], mode: str, runs: int) -> float:
    """Seconds a sample of both engines without a hook, one after the other."""
    code = (
        "import sys, time, tempfile\nfrom pathlib import Path\nimport numpy as np\n"
        "from precision_debug.records import ModelFiles, RunSpec\nfrom precision_debug.run.plan import make_plan\n"
        f"spec = RunSpec(model=ModelFiles(model_file={str(model)!r}), run_mode={mode!r})\n"
        f"feeds = [{{{name!r}: np.random.default_rng(i).random({shape!r}, dtype=np.float32)}} for i in range(8)]\n"
        "with tempfile.TemporaryDirectory() as folder:\n"
        "    plan = make_plan(spec, work_dir=folder)\n    total = 0.0\n"
        "    for side in (plan.baseline, plan.target):\n        session = side.open(feeds)\n"
        "        session.run(feeds[0])\n        begun = time.perf_counter()\n"
        f"        for i in range({runs}):\n            session.run(feeds[i % 8])\n"
        f"        total += (time.perf_counter() - begun) / {runs}\n        session.close()\nprint(total)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def told(points: list[list[float]], bare_seconds: float) -> None:
    for number, seconds, rss in points:
        print(f"  {number:8.0f} samples  {seconds:8.1f} s  {rss / 2**20:7.0f} MiB")
    half = [point for point in points if point[0] >= points[-1][0] / 4]
    numbers = [point[0] for point in half]
    seconds = np.polyfit(numbers, [point[1] for point in half], 1)[0]
    memory = np.polyfit(numbers, [point[2] for point in half], 1)[0]
    print(f"slope from a quarter on: {1e3 * seconds:.2f} ms and {memory:.0f} bytes a sample")
    print(f"bare runs of both engines: {1e3 * bare_seconds:.2f} ms a sample; compared: {seconds / bare_seconds:.2f} x")


def beside(model: Path, name: str, shape: tuple[int, ...], mode: str, each: int, turns: int) -> None:
    """Compared and bare runs in turn, in one process, so that whatever else the machine does slows both."""
    code = (
        "import sys, time, tempfile\nfrom pathlib import Path\nimport numpy as np\n"
        "from precision_debug.events import to_plain_event\nfrom precision_debug.records import ModelFiles, RunSpec\n"
        "from precision_debug.run import pipeline\nfrom precision_debug.run.plan import make_plan\n"
        "class Quiet:\n    def write(self, event): pass\n"
        f"spec = RunSpec(model=ModelFiles(model_file={str(model)!r}), run_mode={mode!r}, explain='off')\n"
        f"feeds = [{{{name!r}: np.random.default_rng(i).random({shape!r}, dtype=np.float32)}} for i in range({each})]\n"
        "ours, bare = [], []\n"
        "with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:\n"
        "    plan = make_plan(spec, work_dir=one)\n"
        "    sides = [side.open(feeds) for side in (plan.baseline, plan.target)]\n"
        "    for side in sides: side.run(feeds[0])\n"
        "    def turns():\n"
        f"        for turn in range({turns} + 1):\n"
        "            begun = time.perf_counter()\n"
        f"            yield [0, {each}]\n"
        "            if turn: ours.append(time.perf_counter() - begun)\n"
        "            begun = time.perf_counter()\n"
        "            for one_feed in feeds:\n"
        "                for side in sides: side.run(one_feed)\n"
        "            if turn: bare.append(time.perf_counter() - begun)\n"
        "    pipeline.execute(spec, Quiet(), folder=Path(two), feeds=feeds, parts=turns())\n"
        f"print(np.median(ours) / {each}, np.median(bare) / {each}, np.median(np.array(ours) / bare))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    ours, plain, ratio = map(float, done.stdout.split()[-3:])
    print(f"in turn, {turns} times {each} samples, medians: compared {1e3 * ours:.1f} ms, bare {1e3 * plain:.1f} ms a "
          f"sample, {ratio:.2f} x")  # fmt: skip


def resnet(count: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build = [sys.executable, "examples/resnet/build.py", "--depth", "50", "-o", str(folder / "resnet50.onnx")]
        subprocess.run(build, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        shape = (1, 3, 224, 224)
        points = run(folder / "resnet50.onnx", "image", shape, count, "ort_int8", folder)
        told(points, bare(folder / "resnet50.onnx", "image", shape, "ort_int8", 20))
        beside(folder / "resnet50.onnx", "image", shape, "ort_int8", 4, 7)


def small(count: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        model = ROOT / "examples/digits/digits.onnx"
        points = run(model, "image", (1, 1, 8, 8), count, "ort_int8", Path(name))
        told(points, bare(model, "image", (1, 1, 8, 8), "ort_int8", 2000))
        beside(model, "image", (1, 1, 8, 8), "ort_int8", 200, 9)


def ray(count: int, mode: str = "ort_fp16_sim", image: int = 224) -> None:
    """The same samples in one process and on two actors of which one is killed half-way: the tables are equal, or this
    fails. What each way's journal says stays in a folder, which is printed."""
    import os
    import signal

    from precision_debug.records import ModelFiles, RunSpec
    from precision_debug.report.from_journal import report_of_events
    from precision_debug.run import parallel_run, pipeline
    from precision_debug.run.journal import Journal, read_events
    from precision_debug.run.pools import Worker
    from precision_debug.settings.options import Workers

    killed: list[int] = []

    def kill_half_way(worker: Worker, done: int) -> None:
        print(f"  part {done} is done", flush=True)
        if done == 8:  # of 16
            killed.append(worker.pid)
            os.kill(worker.pid, signal.SIGKILL)

    folder = Path(tempfile.mkdtemp(prefix="bench-ray-"))
    print(f"{count} samples of {image} x {image} in {mode}: {folder}", flush=True)
    build = [sys.executable, "examples/resnet/build.py", "--depth", "50", "--image", str(image)]
    build += ["-o", str(folder / "resnet50.onnx")]
    subprocess.run(build, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    script = folder / "feeds.py"
    script.write_text(FEEDS.format(shape=(1, 3, image, image), count=count, name="image", log=os.devnull))
    files = ModelFiles(model_file=str(folder / "resnet50.onnx"))
    spec = RunSpec(model=files, run_mode=mode, inputs=str(script), explain="off")
    found = []
    for way in ("two Ray actors, one killed", "one process"):
        (folder / way).mkdir()
        begun = time.perf_counter()
        with Journal(folder / way / "journal.jsonl") as journal:
            if way == "one process":
                pipeline.execute(spec, journal, folder=folder / way)
            else:
                asked = Workers(engine="ray", jobs=2)
                parallel_run.execute(spec, asked, journal, folder=folder / way, on_part=kill_half_way)
        print(f"{way}: {time.perf_counter() - begun:.1f} s for {count} samples", flush=True)
        found.append(report_of_events(read_events(folder / way / "journal.jsonl")))
    one, other = found
    same = one.rows == other.rows and one.notes == other.notes and one.verdict == other.verdict
    print(f"killed {len(killed)}; {len(one.rows)} rows, {len(one.compared)} compared, identical: {same}")
    sys.exit(0 if same and killed else 1)


def merge() -> None:
    """A shard of 130 tensors, as ResNet-50's, and what a driver pays for it, in seconds of a processor."""
    from precision_debug import events, numbers
    from precision_debug.observe.shard import Shard
    from precision_debug.records import Row, Status

    random = np.random.default_rng(0)
    tensors = 130

    def shard(first: int, samples: int) -> Shard:
        found = Shard()
        for sample in range(first, first + samples):
            rows = []
            for place in range(tensors):
                base = random.standard_normal(5000).astype(np.float32)
                noise = 10.0 ** random.uniform(-4, -1) * random.standard_normal(5000)
                numbers_of = numbers.measure(base, base + noise.astype(np.float32))
                rows.append(Row(index=place, op_type="Conv", name=f"tensor_{place}", status=Status.PASS,
                                comparison=numbers_of))  # fmt: skip
            found.add(sample, rows)
        return found

    parts = [shard(8 * number, 8) for number in range(4)]
    texts = [json.dumps(part.to_plain()) for part in parts]
    begun = time.process_time()
    plain = [json.loads(text) for text in texts]
    parsed = (time.process_time() - begun) / len(texts)
    begun = time.process_time()
    read = [Shard.from_plain(one) for one in plain]
    decoded = (time.process_time() - begun) / len(texts)
    begun = time.process_time()
    whole = Shard()
    for _ in range(25):
        for part in read:
            whole.merge(part)
    merged = (time.process_time() - begun) / (25 * len(read))
    begun = time.process_time()
    for text in texts:
        json.dumps(events.to_plain_event(events.ShardDone(text=text)))
    kept = (time.process_time() - begun) / len(texts)
    begun = time.process_time()
    one = shard(100, 1)
    added = time.process_time() - begun
    del one
    size = sum(map(len, texts)) / len(texts)
    cost = parsed + decoded + merged + kept
    print(f"{tensors} tensors: a shard is {size / 1024:.0f} KiB; to read it takes {1e3 * parsed:.1f} ms of JSON and")
    print(f"{1e3 * decoded:.1f} ms of records, to merge it {1e3 * merged:.1f} ms, to keep it in the journal "
          f"{1e3 * kept:.1f} ms")  # fmt: skip
    print(f"measuring and adding one sample of {tensors} x 5000 elements: {1e3 * added:.1f} ms")
    workers, samples, each = 1000, 10**6, 4
    shards = workers * each
    print(f"model: {samples:.0e} samples, {workers} workers, {shards} shards of {samples // shards}: the driver works "
          f"{shards * cost:.0f} s in all, reads {shards * size / 2**30:.1f} GiB, holds {size * 3 / 2**20:.1f} MiB of "
          f"totals and {samples * 60 / 2**20:.0f} MiB of sample numbers")  # fmt: skip
    for seconds in (0.01, 0.1, 1.0):
        compute = samples * seconds / workers
        share = shards * cost / compute
        print(f"  {seconds:4.2f} s a sample: the workers take {compute:.0f} s, the driver {share:.1%} of that")


if __name__ == "__main__":
    what, *rest = sys.argv[1:] or ["merge"]
    if what == "merge":
        merge()
    else:
        way, usual = {"ray": (ray, 64), "resnet": (resnet, 1000), "small": (small, 20000)}[what]
        count = int(rest[0]) if rest else usual
        if what == "ray":
            ray(count, *rest[1:2], *map(int, rest[2:3]))
        else:
            way(count)
