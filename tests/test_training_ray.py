"""Jobs on a Ray cluster: tasks where the plan put them, failures and growth, and messages between actors.

Where tasks are is asked of their actors themselves, not of the job. The cluster is of several local nodes:
https://docs.ray.io/en/latest/ray-core/examples/testing-tips.html
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coplace.instances.errors import InputError
from coplace.training import train
from coplace.training.data.audit import audit
from coplace.training.messages import Message
from coplace.training.transport import Endpoint, open_endpoint
from coplace.training.transport.ray_order import Order
from tests.training_jobs import Run, job

ray = pytest.importorskip("ray")

from ray.cluster_utils import Cluster  # noqa: E402

from coplace.training.nodes import ray as launcher  # noqa: E402
from coplace.training.nodes.ray_actors import Task  # noqa: E402
from coplace.training.transport.ray import NAMESPACE, CoordinatorMailbox, RayEndpoint, actor_name  # noqa: E402

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="Ray runs no clusters of several nodes there"),
    # Sockets and files of Ray that it leaves to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]

LONG = 60.0
NODE = {"num_cpus": 1, "object_store_memory": 200 * 2**20}
QUICK = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 4}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster of the nodes n0 to n3, with a CPU each, at RAY_ADDRESS."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        made = Cluster()
        try:
            made.add_node(**NODE, labels={"coplace.node": "n0"}, include_dashboard=False, _system_config=QUICK)
            for index in range(1, 4):
                made.add_node(wait=False, **NODE, labels={"coplace.node": f"n{index}"})
            made.wait_for_nodes()
            patch.setenv("RAY_ADDRESS", made.address)
            yield made
        finally:
            made.shutdown()


def labels() -> dict[str, str]:
    """Name of each node that is alive, by its id at Ray."""
    return {node["NodeID"]: node["Labels"]["coplace.node"] for node in ray.nodes() if node["Alive"]}


def whereabouts() -> dict[str, tuple[str, int]]:
    """Node and process of each task, as its actor has them."""
    found = {}
    names = labels()
    for entry in ray.util.list_named_actors(all_namespaces=True):
        task = entry["name"].partition("-")[2].partition("-")[2]
        if entry["namespace"] == NAMESPACE and task.startswith(("worker", "server")):
            actor = ray.get_actor(entry["name"], NAMESPACE)
            look = actor.__ray_call__.remote(lambda self: (ray.get_runtime_context().get_node_id(), os.getpid()))
            node, pid = ray.get(look, timeout=LONG)
            found[task] = names[node], pid
    return found


def samples_after(run: Run, samples: int) -> Callable[[dict[str, Any]], bool]:
    """Whether so many samples more than now are committed."""
    begun = run.ask("status")["samples"]
    return lambda status: status["samples"] >= begun + samples


def ready(status: dict[str, Any], tasks: dict[str, tuple[int, int]]) -> bool:
    """Whether exactly so many workers and servers are ready on each node."""
    have: dict[str, tuple[int, int]] = {}
    for task in status["tasks"]:
        if task["phase"] != "ready":
            return False
        worker, ps = have.get(task["node"], (0, 0))
        have[task["node"]] = (worker + 1, ps) if task["role"] == "worker" else (worker, ps + 1)
    return have == tasks


def test_a_job_is_where_it_was_planned_and_survives_and_grows(cluster: Cluster, tmp_path: Path) -> None:
    training = job(
        transport="ray",
        nodes=[{"name": f"n{index}"} for index in range(4)],
        tasks={"n0": {"worker": 1, "ps": 1}, "n1": {"worker": 1}, "n2": {"ps": 1}},
        epochs=100_000,
        checkpoints={"every_seconds": 1},
        evaluate_every=20,
        deadlines={"step": 30, "server": 30, "start": 90},
    )
    run = Run(training, tmp_path / "run")
    run.until(lambda status: status["samples"] > 2000, LONG)
    placed = whereabouts()
    assert {name: node for name, (node, _) in placed.items()} == {
        "server-0": "n0", "worker-0": "n0", "worker-1": "n1", "server-1": "n2",
    }  # fmt: skip

    # Ray starts processes again that were killed: under their names, on their nodes.
    for name in ("worker-1", "server-0"):
        os.kill(placed[name][1], signal.SIGKILL)
    run.until(lambda status: status["failures"] == 2, LONG)
    run.until(samples_after(run, 500), LONG)
    again = whereabouts()
    assert {name: node for name, (node, _) in again.items()} == {name: node for name, (node, _) in placed.items()}
    assert {name for name in again if again[name] != placed[name]} == {"worker-1", "server-0"}

    # A node is gone, and with it a part of the parameters.
    lost = next(node for node in cluster.worker_nodes if node.node_id == node_id("n2"))
    cluster.remove_node(lost, allow_graceful=False)
    run.until(lambda status: ready(status, {"n0": (1, 1), "n1": (1, 0), "n3": (0, 1)}), LONG)
    run.until(samples_after(run, 500), LONG)

    # A node comes, and gets a worker.
    cluster.add_node(**NODE, labels={"coplace.node": "n4"})
    run.until(lambda status: ready(status, {"n0": (1, 1), "n1": (1, 0), "n3": (0, 1), "n4": (1, 0)}), LONG)
    run.until(samples_after(run, 500), LONG)
    assert sorted(node for node, _ in whereabouts().values()) == ["n0", "n0", "n1", "n3", "n4"]

    run.until(lambda status: (status["accuracy"] or 0) > 0.9, LONG)
    run.ask("stop")
    outcome = run.result()
    assert outcome.accuracy is not None
    assert outcome.accuracy > 0.9
    assert sorted(failure.name for failure in outcome.failures[:2]) == ["server-0", "worker-1"]
    assert [(failure.name, failure.why) for failure in outcome.failures[2:]] == [("n2", "Ray has lost it")]
    assert not audit(tmp_path / "run" / "ledger.csv", 1437).faults
    assert not ray.is_initialized()


def node_id(name: str) -> str:
    return next(identity for identity, label in labels().items() if label == name)


class Echo(Task):
    """An actor that sends back what it gets; *reply* is where to."""

    def run(self, spec: Any) -> int:
        endpoint = RayEndpoint("echo", "token")
        while (message := endpoint.receive(LONG)) is not None and message.kind != "stop":
            endpoint.send(message.fields["reply"], "echo", message.fields, message.arrays)
        return 0


@pytest.fixture
def mailboxes(cluster: Cluster) -> Iterator[tuple[Endpoint, list[str], list[Any]]]:
    """The driver's endpoint, and addresses and actors of two that send back, on other nodes."""
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    driver = open_endpoint("ray", "driver", token="token")
    kind = ray.remote(concurrency_groups={"task": 1}, num_cpus=0, max_restarts=1)(Echo)
    actors = []
    for name in ("n1", "n3"):
        options = {"name": actor_name("token", name), "namespace": NAMESPACE, "label_selector": {"coplace.node": name}}
        actors.append(kind.options(**options).remote(options["name"]))
        actors[-1].run.options(concurrency_group="task", max_task_retries=-1).remote(None)
    addresses = [ray.get(actor.whereabouts.remote()) for actor in actors]
    yield driver, addresses, actors
    driver.close()
    ray.shutdown()


def get(endpoint: Endpoint) -> Message:
    message = endpoint.receive(LONG)
    assert message is not None
    return message


def test_messages_arrive_in_order_and_complete(mailboxes: tuple[Endpoint, list[str], list[Any]]) -> None:
    driver, addresses, actors = mailboxes
    array = np.zeros(300_000, np.float32)
    for number in range(30):  # large ones go another way than small ones
        array[:] = number
        receivers = addresses if number % 2 else addresses[0]
        driver.send(receivers, "n", {"n": number, "reply": driver.address}, [array if number % 3 == 0 else array[:9]])
    came: list[int] = []
    for _ in range(45):
        message = get(driver)
        came.append(message.fields["n"])
        assert message.sender == "echo"
        assert message.arrays[0].shape == ((300_000,) if came[-1] % 3 == 0 else (9,))
        assert (message.arrays[0] == came[-1]).all()
    assert sorted(came) == sorted([*range(30), *range(1, 30, 2)])
    assert driver.receive(0.0) is None
    assert driver.bytes_sent == driver.bytes_received

    # An array of 20 MB is only borrowed, not kept.
    driver.send(addresses, "n", {"reply": driver.address}, [np.ones(5_000_000, np.float32)])
    assert [get(driver).arrays[0].sum() for _ in range(2)] == [5_000_000, 5_000_000]

    # An actor that was started again is another receiver.
    with pytest.raises(ray.exceptions.RayError):
        ray.get(actors[0].__ray_call__.remote(lambda self: os._exit(1)))
    driver.send(addresses[0], "n", {"reply": driver.address})
    deadline = time.monotonic() + LONG
    fresh = addresses[0]
    while fresh == addresses[0]:
        assert time.monotonic() < deadline
        try:
            fresh = ray.get(actors[0].whereabouts.remote(), timeout=LONG)
        except ray.exceptions.ActorUnavailableError:
            time.sleep(0.1)
    driver.send(addresses[0], "n", {"reply": driver.address, "lost": True})
    driver.send(fresh, "n", {"reply": driver.address, "lost": False})
    assert get(driver).fields["lost"] is False
    ray.kill(actors[1], no_restart=True)
    for address in (addresses[1], "nobody@1"):
        driver.send(address, "n", {"reply": driver.address}, [np.ones(5_000_000, np.float32)])
    driver.forget(addresses[1])
    driver.send(fresh, "n", {"reply": driver.address})
    assert get(driver).fields == {"reply": driver.address}
    assert driver.receive(0.2) is None
    with pytest.raises(ValueError, match="token"):
        open_endpoint("ray", "driver")


def test_messages_that_overtake_others_wait_for_them() -> None:
    order: Order[str] = Order()
    order.put("a", 1, 1, "a1", 5.0)
    order.put("b", 1, 0, "b0", 5.0)
    assert order.take() == "b0"
    assert order.take() is None
    assert list(order.waiting_since(4.0)) == []
    assert list(order.waiting_since(5.0)) == ["a"]
    order.put("a", 1, 0, "a0", 6.0)
    order.put("a", 1, 0, "a0 again", 6.0)
    assert [order.take(), order.take(), order.take()] == ["a0", "a1", None]
    order.put("a", 2, 0, "new", 7.0)
    order.put("a", 1, 2, "old", 7.0)
    assert [order.take(), order.take()] == ["new", None]
    order.put("a", 2, 2, "never", 8.0)
    order.forget("a")
    assert list(order.waiting_since(9.0)) == []


def test_a_mailbox_refuses_what_is_for_an_earlier_incarnation() -> None:
    mailbox = CoordinatorMailbox("actor")
    mailbox.deliver("1.other", b"")
    mailbox.deliver(mailbox.address.partition("@")[2], b"here", np.zeros(1))
    ((envelope, _),) = mailbox.take()
    assert envelope == b"here"


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"nodes": [{"name": "N0"}, {"name": "n9"}]}, r"nodes\[0\].name: is not in the Ray cluster; found N0; did you"),
        ({"nodes": None, "tasks": {"gpu-box": {"worker": 1, "ps": 1}}}, "ray start --labels coplace.node=gpu-box"),
    ],
)
def test_a_node_that_is_not_there_is_named(
    settings: dict[str, Any], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher.ray, "nodes", lambda: [row("a", "n0"), row("b", "n1")])
    with pytest.raises(InputError, match=text):
        launcher.RayLauncher(job(transport="ray", **settings), "token")


def row(identity: str, label: str = "", **changes: Any) -> dict[str, Any]:
    """What Ray says of a node."""
    return {
        "NodeID": identity, "Alive": True, "NodeManagerAddress": "10.0.0.1", "NodeName": "10.0.0.1",
        "NodeManagerHostname": "host", "Resources": {"CPU": 2.0, "memory": 2**30},
        "Labels": {"coplace.node": label} if label else {}, **changes,
    }  # fmt: skip


def test_nodes_are_named_by_label_else_name_else_host_else_id(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        row("a", "n0"), row("b", NodeName="mine"), row("c"), row("d"), row("e", Resources={}), row("f", Alive=False),
    ]  # fmt: skip
    monkeypatch.setattr(launcher.ray, "nodes", lambda: rows)
    named = launcher._names(launcher._alive(), {})
    assert {name: node.id for name, node in named.items()} == {"n0": "a", "mine": "b", "host": "c", "d": "d"}


def test_an_address_where_nobody_answers_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for address, text in (("127.0.0.1:1", "no Ray cluster answers"), ("ray://head:10001", "must be host:port")):
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(InputError, match=text):
            train(job(transport="ray"), tmp_path / "run", tensorboard=False)


def test_without_ray_its_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'coplace\[ray\]'"):
        train(job(transport="ray"), tmp_path / "run", tensorboard=False)
