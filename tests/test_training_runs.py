"""Whole training runs, with real processes: what is computed, in which order, and from whose samples."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from coplace.instances.errors import InputError
from coplace.instances.history import read_history
from coplace.training import TrainingJob, train
from coplace.training.data.audit import audit
from coplace.training.telemetry.curves import read_curves
from coplace.training.telemetry.steps import read_steps
from tests.training_jobs import commits, digits, job, replay

SAMPLES = 1437
RATE = {"name": "sgd", "lr": 0.05}


def run(job: TrainingJob, folder: Path):
    return train(job, folder, tensorboard=False)


@pytest.mark.parametrize(
    ("settings", "tolerance"),
    [
        ({"scheduling": "static"}, 2e-5),
        ({"optimizer": {"name": "adam", "lr": 0.005}, "transport": "tcp", "servers": 3}, 2e-4),
    ],
)
def test_bsp_is_what_one_process_computes_from_the_summed_batch(settings, tolerance, tmp_path: Path) -> None:
    training = job(**settings)
    outcome = run(training, tmp_path / "run")
    torch.manual_seed(training.seed)
    expected = replay(training, tmp_path / "run", digits())
    trained = load_file(tmp_path / "run" / "model.safetensors")
    assert trained.keys() == expected.keys()
    for name, values in expected.items():
        torch.testing.assert_close(trained[name], values, rtol=1e-3, atol=tolerance)
    assert outcome.accuracy is not None
    assert outcome.accuracy > 0.85
    assert outcome.samples == 4 * SAMPLES
    assert outcome.version == 4 * math.ceil(SAMPLES / 96)
    assert audit(tmp_path / "run" / "ledger.csv", SAMPLES, 4).exact


@pytest.fixture(scope="module")
def stale(tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainingJob, Path]:
    training = job(sync={"name": "ssp", "staleness": 1}, batch=16, optimizer={"name": "sgd", "lr": 0.05})
    folder = tmp_path_factory.mktemp("ssp") / "run"
    run(training, folder)
    return training, folder


def test_ssp_keeps_its_bound(stale: tuple[TrainingJob, Path]) -> None:
    """Whoever starts its step c has parameters with every step before c - staleness of every worker."""
    training, folder = stale
    done: list[dict[str, int]] = [{}]
    for pushes in commits(folder).values():
        clocks = dict(done[-1])
        for worker in {worker for worker, _, _ in pushes}:  # one that had two batches made one step
            clocks[worker] = clocks.get(worker, 0) + 1
        done.append(clocks)
    workers = sorted(done[-1])
    assert len(workers) == 3
    steps = [step for step in read_steps(folder / "steps.csv") if step.role == "worker"]
    assert len(steps) == len(done) - 1
    furthest = 0
    for step in steps:
        clocks = done[step.version]
        ahead = clocks.get(step.task, 0) - min(clocks.get(worker, 0) for worker in workers)
        assert ahead <= training.sync.staleness
        furthest = max(furthest, ahead)
    assert furthest > 0, "nobody was ever ahead: the test has shown nothing"


def test_what_is_written_agrees(stale: tuple[TrainingJob, Path]) -> None:
    _, folder = stale
    steps = list(read_steps(folder / "steps.csv"))
    workers = [step for step in steps if step.role == "worker"]
    assert sum(step.samples for step in workers) == 4 * SAMPLES
    for step in workers:
        parts = step.compute_seconds + step.wait_seconds + step.communicate_seconds
        assert parts <= step.seconds + 1e-6
        assert step.rss_mib > 0
    assert {step.task for step in steps if step.role == "server"} == {"server-0", "server-1"}
    points = list(read_curves(folder / "curves.csv"))
    assert [round(point.epoch) for point in points][-1] == 4
    assert points[-1].accuracy is not None
    assert points[-1].accuracy > 0.8
    history = list(read_history(folder / "history.csv"))
    assert history
    assert {(row.workers, row.servers, row.sync, row.model) for row in history} == {(3, 2, "ssp", "digits")}
    assert history[-1].samples == 4 * SAMPLES
    assert audit(folder / "ledger.csv", SAMPLES, 4).exact


@pytest.mark.parametrize(
    "settings",
    [
        {"sync": {"name": "asp"}, "optimizer": {"name": "sgd", "lr": 0.2}, "batch": 32},
        {"compression": {"name": "topk", "ratio": 0.1}, "epochs": 6},
        {
            "compression": {"name": "float16"},
            "sync": {"name": "ssp", "staleness": "auto"},
            "optimizer": {"name": "adamw", "lr": 0.003},
            "batch": 32,
            "arguments": {"normalise": True},
            "schedule": "cosine",
        },
    ],
    ids=["asp", "topk", "float16"],
)
def test_other_ways_learn_too(settings, tmp_path: Path) -> None:
    outcome = run(job(**settings), tmp_path / "run")
    assert outcome.accuracy is not None
    assert outcome.accuracy > 0.85
    assert outcome.complete
    assert audit(tmp_path / "run" / "ledger.csv", SAMPLES).exact
    parameters = load_file(tmp_path / "run" / "model.safetensors")
    assert all(np.isfinite(values.numpy()).all() for values in parameters.values())


def test_training_ends_where_the_target_is_met(tmp_path: Path) -> None:
    outcome = run(job(epochs=50, stop={"accuracy": 0.8}, workers=1, servers=1), tmp_path / "run")
    assert "target" in outcome.ended
    assert outcome.epochs < 50
    assert outcome.accuracy is not None
    assert outcome.accuracy >= 0.8


def test_a_program_at_fault_ends_the_job_with_its_words(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text("def program():\n    raise RuntimeError('no data today')\n")
    with pytest.raises(InputError, match="no data today"):
        run(job(program=f"{tmp_path}/wrong.py:program"), tmp_path / "run")


@pytest.mark.parametrize("sync", [{"name": "bsp"}, {"name": "asp"}])
def test_no_step_has_a_single_sample(sync, tmp_path: Path) -> None:
    """Batch normalisation refuses one; the epoch of 1,437 samples would end with it."""
    training = job(sync=sync, batch=718, epochs=3, arguments={"normalise": True}, workers=2, optimizer=RATE)
    outcome = run(training, tmp_path / "run")
    assert outcome.samples == 3 * SAMPLES
    assert not outcome.failures
    assert audit(tmp_path / "run" / "ledger.csv", SAMPLES, 3).exact
    steps = [step for step in read_steps(tmp_path / "run" / "steps.csv") if step.role == "worker"]
    assert min(step.samples for step in steps) > 1
