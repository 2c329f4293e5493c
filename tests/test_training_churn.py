"""Tasks and nodes come, go and fail while a job trains; what it has computed in the end is what the ledger lists."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from safetensors.torch import load_file

from coplace.training import JobError, TrainingJob
from coplace.training.data.audit import audit
from tests.training_jobs import Run, digits, job, replay

SAMPLES = 1437


def ready(status: dict[str, Any], workers: int, servers: int) -> bool:
    """Whether so many tasks are ready, and no others are there."""
    roles = [task["role"] for task in status["tasks"] if task["phase"] == "ready"]
    return len(status["tasks"]) == len(roles) == workers + servers and roles.count("worker") == workers


def as_the_ledger_lists(training: TrainingJob, folder: Path, tolerance: float = 2e-4) -> None:
    """The model is what one process makes of the updates that count: no push was lost, halved or used twice."""
    torch.manual_seed(training.seed)
    expected = replay(training, folder, digits())
    trained = load_file(folder / "model.safetensors")
    for name, values in expected.items():
        torch.testing.assert_close(trained[name], values, rtol=1e-2, atol=tolerance)
    assert audit(folder / "ledger.csv", SAMPLES, training.epochs).exact


def pid_of(status: dict[str, Any], role: str) -> int:
    return next(task["pid"] for task in status["tasks"] if task["role"] == role and task["phase"] == "ready")


@pytest.mark.parametrize("transport", ["file", "tcp"])
def test_workers_and_servers_are_added_moved_and_let_go(transport: str, tmp_path: Path) -> None:
    training = job(transport=transport, epochs=1000, evaluate_every=20, workers=1, servers=1, sync={"name": "bsp"})
    run = Run(training, tmp_path / "run")
    run.until(lambda status: status["version"] > 10)
    run.ask("resize", workers=3, servers=2)
    status = run.until(lambda status: ready(status, 3, 2) and len(status["pauses"]) == 1)
    # Move a server: from the node that has it to one that has none.
    grants = status["grants"]
    source = next(node for node, grant in grants.items() if grant["ps"])
    target = next(node for node, grant in grants.items() if not grant["ps"])
    grants[source]["ps"] -= 1
    grants[target]["ps"] += 1
    run.ask("resize", tasks=grants)
    moved = run.until(lambda status: ready(status, 3, 2) and len(status["pauses"]) == 2)
    assert {task["node"] for task in moved["tasks"] if task["role"] == "ps"} >= {target}
    run.ask("resize", workers=2, servers=1)
    before = {task["pid"] for task in run.ask("status")["tasks"]}
    after = {
        task["pid"] for task in run.until(lambda status: ready(status, 2, 1) and len(status["pauses"]) == 3)["tasks"]
    }
    # Who is let go ends at once when it is told so, not only when it is killed after some time.
    _, left = psutil.wait_procs([psutil.Process(pid) for pid in before - after if psutil.pid_exists(pid)], 5)
    assert not left
    run.ask("stop")
    outcome = run.result()
    assert outcome.rolled_back == 0
    assert not outcome.failures
    training = training.model_copy(update={"epochs": int(outcome.epochs)})
    as_the_ledger_lists(training, tmp_path / "run")


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainingJob, Path, Run]:
    """A job whose worker, server and node were killed, and which then was stopped."""
    folder = tmp_path_factory.mktemp("killed") / "run"
    training = job(
        epochs=1000, evaluate_every=20, checkpoints={"every_seconds": 0.5}, optimizer={"name": "sgd", "lr": 0.02}
    )
    run = Run(training, folder)
    status = run.until(lambda status: status["version"] > 10)
    os.kill(pid_of(status, "worker"), signal.SIGKILL)
    status = run.until(lambda status: status["failures"] == 1 and ready(status, 3, 2))
    before = status["version"]
    status = run.until(lambda status: status["version"] > before + 10)
    os.kill(pid_of(status, "ps"), signal.SIGKILL)
    status = run.until(lambda status: status["failures"] == 2 and ready(status, 3, 2) and status["state"] == "training")
    before = status["version"]
    run.until(lambda status: status["version"] > before + 10)
    node = next(task["node"] for task in status["tasks"] if task["role"] == "ps")
    os.kill(status["nodes"][node]["pid"], signal.SIGKILL)
    run.until(lambda status: node not in status["nodes"])
    status = run.until(lambda status: status["failures"] >= 3 and status["state"] == "training")
    before = status["version"]
    run.until(lambda status: status["version"] > before + 10)
    run.ask("join", host={"name": "later"})
    run.until(lambda status: any(task["node"] == "later" and task["phase"] == "ready" for task in status["tasks"]))
    run.ask("stop")
    return training, folder, run


def test_whatever_is_killed_the_job_goes_on(killed: tuple[TrainingJob, Path, Run]) -> None:
    _, _, run = killed
    outcome = run.result()
    assert len(outcome.failures) >= 3
    assert outcome.rolled_back > 0


def test_a_failure_rolls_all_shards_and_the_ledger_back_to_one_version(killed: tuple[TrainingJob, Path, Run]) -> None:
    training, folder, run = killed
    outcome = run.result()
    as_the_ledger_lists(training.model_copy(update={"epochs": int(outcome.epochs)}), folder)


def test_a_resumed_job_goes_on_where_the_checkpoint_was(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    training = job(epochs=3, workers=2, servers=1)
    Run(training, folder).result()
    longer = training.model_copy(update={"epochs": 5})
    outcome = Run(longer, folder, resume=True).result()
    assert outcome.epochs == 5
    as_the_ledger_lists(longer, folder)


def test_a_node_that_says_nothing_is_given_up_and_may_come_back(tmp_path: Path) -> None:
    training = job(
        epochs=1000,
        evaluate_every=20,
        workers=3,
        servers=1,
        deadlines={"step": 20, "node": 1.5, "server": 20, "start": 60},
    )
    run = Run(training, tmp_path / "run")
    status = run.until(lambda status: status["version"] > 5)
    servers = {task["node"] for task in status["tasks"] if task["role"] == "ps"}
    node = next(task["node"] for task in status["tasks"] if task["node"] not in servers)
    agent = status["nodes"][node]["pid"]
    os.kill(agent, signal.SIGSTOP)
    try:
        run.until(lambda status: node not in status["nodes"] and status["state"] == "training")
    finally:
        os.kill(agent, signal.SIGCONT)
    run.until(lambda status: node in status["nodes"])
    run.ask("stop")
    outcome = run.result()
    assert any(failure.name == node for failure in outcome.failures)
    assert audit(tmp_path / "run" / "ledger.csv", SAMPLES).exact


def test_a_job_whose_only_node_is_lost_for_good_ends_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {"step": 20, "node": 1, "server": 20, "start": 20}
    run = Run(job(epochs=10**6, nodes=[{"name": "only"}], workers=1, servers=1, deadlines=limits), tmp_path / "run")
    status = run.until(lambda status: status["version"] > 5)
    monkeypatch.setattr("coplace.training.coordinator.membership.UNABLE", 0.3)  # not before: starting may take longer
    os.kill(status["nodes"]["only"]["pid"], signal.SIGKILL)
    with pytest.raises(JobError, match="could be started"):
        run.result(40)


def test_a_job_grants_itself_what_the_nodes_allow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step is made long, so that workers compute nearly all of the time and one more is worth having."""
    monkeypatch.setattr("coplace.training.coordinator.autoscale.PATIENCE_SECONDS", 0.3)
    training = job(epochs=10**6, evaluate_every=1000, workers=1, servers=1, autoscale=True, worker={"max": 2})
    run = Run(training, tmp_path / "run")
    run.until(lambda status: status["version"] > 5)
    for node in ("n0", "n1", "n2"):
        run.ask("slow", node=node, delay=0.05)
    status = run.until(lambda status: ready(status, 2, 1))
    assert status["wish"]["workers"] <= 2
    run.ask("stop")
    run.result()
    assert any("one more would add speed" in line for line in run.said)
