"""What a coordinator decides, without processes: who may start, who gets how much, and where tasks go."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coplace.training.coordinator.grants import grown, initial, spread, total, without
from coplace.training.coordinator.rate import rate
from coplace.training.coordinator.validation import Validation
from coplace.training.job import Bounds, Grant, TrainingJob
from coplace.training.nodes.launcher import NodeState
from coplace.training.scheduling.balance import Adaptive, Dynamic, Seen, Static
from coplace.training.scheduling.threads import threads_of
from coplace.training.scheduling.wishes import wish
from coplace.training.sync import Pace, synchronisation
from coplace.training.sync.dssp import DynamicStaleness
from coplace.training.sync.ssp import StaleSynchronous

# --- synchronisation ---


def play(strategy, seconds: list[float], until: float, jitter: float = 0.0, seed: int = 0) -> tuple[int, float, int]:
    """Workers with these step times: how far ahead of the slowest a step was started, time waited, steps done."""
    draw = random.Random(seed)
    paces = {f"w{index}": Pace(step_seconds=each) for index, each in enumerate(seconds)}
    busy: dict[str, float] = {}
    idle = dict.fromkeys(paces, 0.0)
    now, furthest, waited = 0.0, 0, 0.0
    while now < until:
        for name, since in list(idle.items()):
            if strategy.may_start(name, paces):
                furthest = max(furthest, paces[name].clock - min(pace.clock for pace in paces.values()))
                waited += now - since
                busy[name] = now + seconds[int(name[1:])] * (1 + jitter * draw.uniform(-1, 1))
                del idle[name]
        name = min(busy, key=lambda each: busy[each])
        now = busy.pop(name)
        paces[name].clock += 1
        paces[name].finished_at = now
        idle[name] = now
    return furthest, waited, sum(pace.clock for pace in paces.values())


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.floats(0.1, 3.0), min_size=2, max_size=5),
    st.integers(0, 4),
    st.floats(0, 0.5),
)
def test_nobody_is_further_ahead_than_the_staleness(seconds: list[float], staleness: int, jitter: float) -> None:
    furthest, _, steps = play(StaleSynchronous(staleness), seconds, 30.0, jitter)
    assert furthest <= staleness
    assert steps > 0


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0.1, 3.0), min_size=2, max_size=5), st.integers(1, 6), st.floats(0, 0.5))
def test_chosen_staleness_keeps_its_bound(seconds: list[float], most: int, jitter: float) -> None:
    furthest, _, steps = play(DynamicStaleness(1, most), seconds, 30.0, jitter)
    assert furthest <= most
    assert steps > 0


def test_chosen_staleness_waits_less_than_the_least_one() -> None:
    """A worker that needs 0.3 of the slowest's time: it should wait for a step that is about to end."""
    chosen = play(DynamicStaleness(1, 8), [0.3, 1.0], 200.0, 0.3)
    fixed = play(StaleSynchronous(1), [0.3, 1.0], 200.0, 0.3)
    assert chosen[1] < fixed[1]
    assert chosen[2] >= fixed[2]


def test_a_persistent_straggler_makes_everybody_as_slow() -> None:
    """Any bounded staleness degenerates to the pace of the slowest."""
    _, _, steps = play(StaleSynchronous(5), [0.1, 1.0], 200.0)
    assert steps == pytest.approx(2 * 200, rel=0.05)


def test_settings_name_their_strategy() -> None:
    job = TrainingJob.model_validate({"name": "j", "program": "p:f", "batch": 8})
    kinds = {}
    for sync in ({"name": "bsp"}, {"name": "asp"}, {"name": "ssp"}, {"name": "ssp", "staleness": "auto", "most": 4}):
        strategy = synchronisation(TrainingJob.model_validate({**job.model_dump(), "sync": sync}).sync)
        kinds[type(strategy).__name__] = strategy.grouped
    assert kinds == {
        "BulkSynchronous": True,
        "Asynchronous": False,
        "StaleSynchronous": False,
        "DynamicStaleness": False,
    }


# --- shares ---


@pytest.mark.parametrize("overheads", [(0.0, 0.0, 0.0), (0.2, 0.05, 0.1)])
def test_adaptive_shares_let_all_finish_together(overheads: tuple[float, ...]) -> None:
    speeds = (600.0, 600.0, 200.0)
    balance, cores = Adaptive(), {f"w{index}": 1.0 for index in range(3)}
    for _ in range(30):
        weights = balance.weights(cores, 1200)
        whole = sum(weights.values())
        shares = {name: max(1, round(1200 * weight / whole)) for name, weight in weights.items()}
        times = {}
        for index, name in enumerate(cores):
            compute = shares[name] / speeds[index]
            times[name] = compute + overheads[index]
            balance.saw(name, Seen(shares[name], times[name], compute, compute))
    assert max(times.values()) / min(times.values()) < 1.05


def test_adaptive_shares_return_to_equal_ones_where_only_overhead_counts() -> None:
    """Otherwise any shares, however odd, would confirm themselves: the measured speed is then what the share is."""
    balance, cores = Adaptive(), {"a": 1.0, "b": 1.0}
    shares = {"a": 900, "b": 100}
    for _ in range(1000):
        for name, count in shares.items():
            balance.saw(name, Seen(count, 0.02, 0.01, 0.01))
        weights = balance.weights(cores, 1000)
        shares = {name: max(1, round(1000 * weight / sum(weights.values()))) for name, weight in weights.items()}
    assert abs(shares["a"] - shares["b"]) < 100


def test_dynamic_shares_follow_the_cores_that_workers_get() -> None:
    balance = Dynamic()
    for _ in range(20):
        balance.saw("fast", Seen(10, 1.0, 1.0, 0.6))
        balance.saw("slow", Seen(10, 1.0, 1.0, 0.2))
    weights = balance.weights({"fast": 1.0, "slow": 1.0, "new": 0.5}, 30)
    assert weights["fast"] / weights["slow"] == pytest.approx(3.0, rel=0.05)
    assert weights["new"] == 0.5
    assert set(Static().weights({"a": 1.0, "b": 2.0}, 10).values()) == {1.0}


@pytest.mark.parametrize(
    ("arguments", "threads"),
    [((3, 1000, 1, None, True), 3), (("auto", 4000, 2, None, False), 2), (("auto", 4000, 1, 1.9, True), 2),
     (("auto", 4000, 1, 1.9, False), 4), (("auto", 500, 3, 0.1, True), 1)],
)  # fmt: skip
def test_threads(arguments: tuple, threads: int) -> None:
    assert threads_of(*arguments) == threads


def test_wishes() -> None:
    even = {"a": 1.0, "b": 1.0}
    assert wish(2, 0.9, even, 1, 4).workers == 3
    assert wish(2, 0.9, even, 1, 2).workers == 2
    assert wish(2, 0.5, even, 1, 4).workers == 2
    fewer = wish(2, 0.2, {"a": 1.0, "b": 0.5}, 1, 4)
    assert (fewer.workers, fewer.without) == (1, ("b",))
    assert wish(2, 0.2, even, 2, 4).workers == 2
    useless = wish(3, 0.9, {"a": 1.0, "b": 1.0, "c": 0.01}, 1, 4)
    assert useless.without == ("c",)
    assert "c" in useless.reason


# --- grants ---


def nodes(**cpus: int) -> dict[str, NodeState]:
    return {name: NodeState(name, cpu, 4096) for name, cpu in cpus.items()}


def test_tasks_are_spread_by_cpu() -> None:
    there = nodes(a=1000, b=1000, c=4000)
    grants = spread(6, 2, there)
    assert total(grants, "worker") == 6
    assert total(grants, "ps") == 2
    assert grants["c"].worker > grants.get("a", Grant()).worker


def test_resizing_keeps_what_runs() -> None:
    there = nodes(a=1000, b=1000, c=1000)
    before = spread(3, 1, there)
    more = spread(3, 2, there, before)
    assert {node: grant.worker for node, grant in more.items()} == dict.fromkeys(there, 1)
    fewer = spread(2, 1, there, before)
    moved = [node for node in there if fewer.get(node, Grant()).worker > before[node].worker]
    assert not moved


def test_what_a_lost_node_had_comes_to_the_others_if_there_is_room() -> None:
    there = nodes(a=2000, b=1000)
    grants = {"a": Grant(worker=1), "b": Grant(worker=1), "c": Grant(worker=2, ps=1)}
    left = without(grants, "c", there, Bounds(), Bounds())
    assert total(left, "ps") == 1
    assert total(left, "worker") == 3  # one core was free
    assert "c" not in left
    assert without(grants, "c", {}, Bounds(), Bounds()) == grants


def test_a_node_that_joins_gets_workers_within_the_bounds() -> None:
    there = nodes(a=1000, b=3000)
    grants = {"a": Grant(worker=1, ps=1)}
    assert grown(grants, "b", there, Bounds())["b"] == Grant(worker=3)
    assert grown(grants, "b", there, Bounds(max=2))["b"] == Grant(worker=1)
    assert grown(grants, "b", there, Bounds(max=1)) == grants


def test_a_plan_is_taken_as_it_is() -> None:
    plan = {"a": {"worker": 2}, "b": {"ps": 1}, "c": {}}
    job = TrainingJob.model_validate({"name": "j", "program": "p:f", "batch": 8, "tasks": plan})
    assert initial(job, nodes(a=1000, b=1000, c=1000)) == {"a": Grant(worker=2), "b": Grant(ps=1)}


# --- small ones ---


def test_rate() -> None:
    assert rate("constant", 0.1, 0.7) == 0.1
    assert [round(rate("cosine", 0.2, progress), 3) for progress in (0.0, 0.5, 1.0, 2.0)] == [0.2, 0.1, 0.0, 0.0]


def test_parts_of_a_validation_are_added_up() -> None:
    validation = Validation(3, 10, 100, 30, False)
    part = validation.part("a", 0, 10)
    validation.part("b", 10, 30)
    assert part == {"number": 3, "version": 10, "start": 0, "stop": 10}
    assert not validation.add("a", {"number": 2, "loss": 1.0, "accuracy": 1.0})
    assert not validation.add("a", {"number": 3, "loss": 1.0, "accuracy": 9.0})
    assert not validation.add("a", {"number": 3, "loss": 1.0, "accuracy": 9.0})
    assert validation.add("b", {"number": 3, "loss": 2.0, "accuracy": 15.0})
    assert validation.result == (0.1, 0.8)
