"""What a run writes and shows: logs, history, TensorBoard, the terminal."""

import io
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from coplace.instances import InputError, read_history, write_history
from coplace.training.telemetry.curves import CurveLog, CurvePoint, read_curves
from coplace.training.telemetry.history import JobFacts, Summary
from coplace.training.telemetry.steps import SERVER, WORKER, StepLog, StepRecord, read_steps
from coplace.training.telemetry.tables import columns
from coplace.training.telemetry.tensorboard import ScalarWriter
from coplace.training.telemetry.terminal import ServerRow, Snapshot, Terminal, WorkerRow, line, plain

GOLDEN = Path(__file__).parent / "golden"

STEP = StepRecord(
    at_seconds=1.25, task="worker-0", role=WORKER, node="a, the first", step=3, version=7, epoch=0, samples=64,
    seconds=0.5, compute_seconds=0.3, wait_seconds=0.1, communicate_seconds=0.1, staleness=2, mib_sent=1.5,
    mib_received=2.5, rss_mib=300.0, share=0.25, threads=2, loss=-0.5,
)  # fmt: skip
POINT = CurvePoint(
    at_seconds=9.5, epoch=1.5, version=30, samples=1920, loss=0.75, validation_loss=0.875, accuracy=0.625
)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_steps_and_curves_read_back_as_written(tmp_path):
    steps = [STEP, replace(STEP, loss=None), replace(STEP, role=SERVER, samples=0)]
    with StepLog(tmp_path / "steps.csv") as log:
        for step in steps:
            log.append(step)
    assert list(read_steps(tmp_path / "steps.csv")) == steps
    points = [POINT, CurvePoint(10, 2, 31, 1984)]
    with CurveLog(tmp_path / "curves.csv") as curves:
        for point in points:
            curves.append(point)
    assert list(read_curves(tmp_path / "curves.csv")) == points


def test_a_loss_that_diverged_is_written(tmp_path):
    with StepLog(tmp_path / "s") as log:
        log.append(replace(STEP, loss=math.nan))
    (read,) = read_steps(tmp_path / "s")
    assert read.loss is not None
    assert math.isnan(read.loss)


def test_lines_reach_the_file_once_a_second(tmp_path):
    clock = Clock()
    log = StepLog(tmp_path / "s", clock=clock)
    for _ in range(3):
        log.append(STEP)
    assert list(read_steps(tmp_path / "s")) == []
    clock.now = 1.0
    log.append(STEP)
    assert len(list(read_steps(tmp_path / "s"))) == 4
    log.append(STEP)
    assert len(list(read_steps(tmp_path / "s"))) == 4
    log.close()
    log.close()
    assert len(list(read_steps(tmp_path / "s"))) == 5


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_log_whose_writer_was_killed_is_read_and_carried_on(tmp_path, cut):
    path = tmp_path / "s"
    with StepLog(path) as log:
        log.append(STEP)
        log.append(STEP)
    path.write_bytes(path.read_bytes()[:-cut])
    assert list(read_steps(path)) == [STEP]
    with StepLog(path) as log:
        log.append(replace(STEP, step=9))
    assert [step.step for step in read_steps(path)] == [3, 9]


def test_a_log_killed_within_its_header_starts_anew(tmp_path):
    (tmp_path / "s").write_text("at_sec", encoding="ascii")
    with StepLog(tmp_path / "s") as log:
        log.append(STEP)
    assert list(read_steps(tmp_path / "s")) == [STEP]


def test_another_file_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "s"
    path.write_text("a,b\n1,2\n", encoding="ascii")
    with pytest.raises(InputError, match=r"line 1: must have the columns at_seconds, task, .*; found 'a,b'"):
        StepLog(path)
    with pytest.raises(InputError, match="line 1: must have the columns"):
        list(read_steps(path))
    path.write_text("a,b\n1,2", encoding="ascii")
    with pytest.raises(InputError):
        StepLog(path)
    assert path.read_text(encoding="ascii") == "a,b\n1,2"


@pytest.mark.parametrize(
    ("column", "cell", "message"),
    [
        ("step", "1.5", "line 2.step: must be a whole number; found '1.5'"),
        ("step", "-1", "line 2.step: must be a whole number from 0; found '-1'"),
        ("seconds", "long", "line 2.seconds: must be a number; found 'long'"),
        ("seconds", "nan", "line 2.seconds: must be a number from 0; found 'nan'"),
        ("task", "", "line 2.task: must not be empty; found ''"),
        ("loss", "low", "line 2.loss: must be a number; found 'low'"),
        ("role", "chief", "line 2.role: must be worker or server; found 'chief'"),
    ],
)
def test_a_wrong_cell_is_named(tmp_path, column, cell, message):
    names = columns(StepRecord)
    cells = [str(getattr(STEP, name)).replace(",", "") for name in names]
    cells[names.index(column)] = cell
    path = tmp_path / "s"
    path.write_text(",".join(names) + "\n" + ",".join(cells) + "\n", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        list(read_steps(path))
    assert str(caught.value) == f"{path}: {message}"


def test_wrong_numbers_of_cells_and_missing_files(tmp_path):
    path = tmp_path / "s"
    path.write_text(",".join(columns(CurvePoint)) + "\n1,2\n", encoding="utf-8")
    with pytest.raises(InputError, match="line 2: must have 7 cells; found 2"):
        list(read_curves(path))
    with pytest.raises(InputError, match="cannot be read: No such file"):
        list(read_curves(tmp_path / "none"))


FACTS = JobFacts(
    job="j",
    model="lenet",
    sync="ssp",
    workers=2,
    servers=1,
    worker_cpu=500,
    ps_cpu=250,
    batch=32,
    span=2,
    model_mib=1.5,
)


def test_history_has_a_row_for_each_interval_and_configuration(tmp_path):
    summary = Summary(FACTS, every_seconds=10.0)
    rows = []
    for second in range(1, 26):
        if second == 15:
            rows += summary.change(14.5, None)
        if second == 17:
            rows += summary.change(16.5, replace(FACTS, workers=1))
        for worker in range(2):
            step = replace(
                STEP, at_seconds=second, task=f"worker-{worker}", samples=32, seconds=1.0, wait_seconds=0.25 * worker,
                staleness=worker, mib_sent=2.0, rss_mib=100.0 + second, loss=1 / second,
            )  # fmt: skip
            rows += summary.add(step)
        rows += summary.add(replace(STEP, at_seconds=second, role=SERVER, samples=0, mib_sent=1.0, rss_mib=50.0))
        if second == 12:
            summary.evaluated(0.5)
            summary.evaluated(math.nan)
    rows += summary.close(26.5)
    assert [(row.at_seconds, row.seconds, row.workers) for row in rows] == [(10, 10, 2), (14.5, 4.5, 2), (26.5, 10, 1)]
    first, second_row, last = rows
    assert first.speed == pytest.approx(9 * 64 / 10)  # the steps that end at 10 s are of the next interval
    assert first.sync_wait_share == pytest.approx(0.125)
    assert first.staleness == pytest.approx(0.5)
    assert first.mib_sent == pytest.approx(9 * 5)
    assert (first.worker_rss, first.ps_rss, first.accuracy, first.samples) == (109.0, 50.0, None, 9 * 64)
    assert first.loss == pytest.approx(sum(1 / s for s in range(1, 10)) / 9)
    assert second_row.accuracy == 0.5
    assert (last.gpu_type, last.gpus_per_worker, last.architecture, last.sync) == ("none", 0, "ps", "ssp")
    assert last.samples == 25 * 64  # with those of the pause
    write_history(rows, tmp_path / "h.csv")
    assert list(read_history(tmp_path / "h.csv")) == rows


def test_an_interval_without_steps_has_speed_0_and_a_part_of_one_is_left_out():
    summary = Summary(FACTS, every_seconds=10.0, started=5.0, samples=100)
    (row,) = summary.until(16.0)
    assert (row.at_seconds, row.speed, row.samples, row.sync_wait_share, row.loss) == (15.0, 0.0, 100, None, None)
    assert summary.close(17.0) == []
    with pytest.raises(ValueError, match="worker or server"):
        summary.add(replace(STEP, role="chief"))


def test_a_loss_that_diverged_stays_out_of_the_history():
    summary = Summary(FACTS)
    summary.add(replace(STEP, loss=math.nan))
    (row,) = summary.close(2.0)
    assert row.loss is None


def test_scalars_for_tensorboard(tmp_path):
    event_file_loader = pytest.importorskip("tensorboard.backend.event_processing.event_file_loader")
    with ScalarWriter(tmp_path / "run", every_seconds=1.0, started=1000.0) as writer:
        assert writer.on
        for second in range(1, 4):
            for worker in ("a", "b"):
                writer.step(replace(STEP, task=worker, at_seconds=second, samples=10, seconds=1.0, wait_seconds=0.25))
            writer.step(replace(STEP, role=SERVER))
        writer.point(POINT)
        writer.point(CurvePoint(10, 2, 31, 1984))
    writer.close()
    (file,) = (tmp_path / "run").iterdir()
    found: dict[str, list[tuple[int, float]]] = {}
    for event in event_file_loader.LegacyEventFileLoader(str(file)).Load():
        for value in event.summary.value:
            found.setdefault(value.tag, []).append((event.step, value.simple_value))
            assert event.wall_time >= 1000.0
    assert found["loss/training"] == [(1920, 0.75)]
    assert found["loss/validation"] == [(1920, 0.875)]
    assert found["accuracy/validation"] == [(1920, 0.625)]
    assert {step[1] for step in found["share/a"]} == {0.25}
    assert {step[1] for step in found["wait/b"]} == {0.25}
    assert set(found) == {
        "loss/training", "loss/validation", "accuracy/validation", "speed/samples_per_second",
        "share/a", "share/b", "wait/a", "wait/b",
    }  # fmt: skip


def test_without_tensorboard_it_says_so_once_and_goes_on(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto.event_pb2", None)
    said: list[str] = []
    writer = ScalarWriter(tmp_path / "run", say=said.append)
    writer.step(STEP)
    writer.point(POINT)
    writer.close()
    assert not writer.on
    assert len(said) == 1
    assert not (tmp_path / "run").exists()


def test_no_part_of_telemetry_loads_torch():
    parts = ["steps", "curves", "history", "tensorboard", "terminal"]
    names = ["law", "nodes.monitor", *(f"telemetry.{part}" for part in parts)]
    script = "import sys\n" + "".join(f"import coplace.training.{name}\n" for name in names)
    script += "assert not {'torch', 'tensorboard', 'sklearn'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


SNAPSHOT = Snapshot(
    job="lenet [on] digits", state="training", at_seconds=83.2, epoch=3.996, epochs=20, samples=38_336,
    samples_per_second=1234.5, loss=0.123456, accuracy=0.9512, target=0.97, foreseen_samples=26_543.0,
    foreseen_seconds=21.5,
    workers=(
        WorkerRow("worker-0", "node-a", 0.6234, 812.34, 0.021, 0.4, 412.7, 2),
        WorkerRow("worker-1", "node-with-a-name-that-is-very-long-indeed-and-then-some-more", 0.3766, 422.1, 0.3, 1.25,
                  1398.2, 1),
        WorkerRow("worker-2", "node-c", 0.0),
    ),
    servers=(ServerRow("server-0", "node-a", 12.25, 301.0), ServerRow("server-1", "node-b", 12.25)),
)  # fmt: skip


def test_the_plain_picture_at_width_100():
    """After a wanted change, write plain(SNAPSHOT, 100) to the golden file anew and look at the difference."""
    picture = plain(SNAPSHOT, 100)
    assert all(len(row) <= 100 for row in picture.splitlines())
    assert picture == (GOLDEN / "training-100.txt").read_text(encoding="utf-8")


def test_a_line_says_what_is_known():
    assert line(SNAPSHOT) == (
        "lenet [on] digits: training, epoch 3.99/20, 38,336 samples, 1,234 samples/s, loss 0.1235, "
        "accuracy 95.12 % of 97 %, after 83 s, target in about 27,000 samples (22 s)"
    )
    assert line(Snapshot("j", "starting", 0.0, 0.0)) == "j: starting, epoch 0.00, 0 samples, after 0 s"


def test_where_there_is_no_terminal_a_line_comes_every_10_s_and_with_each_epoch():
    clock, stream = Clock(), io.StringIO()
    with Terminal(stream, clock=clock) as terminal:
        for second in range(31):
            clock.now = float(second)
            terminal.show(Snapshot("j", "training", float(second), 1.0 if second < 15 else 2.0))
        terminal.show(Snapshot("j", "done", 30.5, 2.0))
        terminal.show(Snapshot("j", "done", 30.6, 2.0))
    assert [row.split(", after ")[1] for row in stream.getvalue().splitlines()] == [
        "0 s", "10 s", "15 s", "25 s", "30 s", "31 s"
    ]  # fmt: skip


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_the_picture_is_live(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("LINES", "50")
    clock, stream = Clock(), Screen()
    with Terminal(stream, clock=clock) as terminal:
        terminal.show(SNAPSHOT)
        clock.now = 0.1
        terminal.show(replace(SNAPSHOT, samples=77_777))  # too soon to be painted, but the last one is
    text = stream.getvalue()
    assert "worker-1" in text
    assert "77,777" in text
    assert "\x1b[" in text


def test_a_stream_that_is_gone_does_not_stop_the_run():
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    with Terminal(Gone()) as terminal:
        terminal.show(SNAPSHOT)
        terminal.show(replace(SNAPSHOT, state="done"))
