"""A valid instance document with a bit of everything, and a strategy for small valid instances."""

from typing import Any

from hypothesis import strategies as st

from coplace.instances import (
    Allocation,
    AllReduceCoefficients,
    AllReduceSpeed,
    Instance,
    Interference,
    Job,
    Node,
    Observation,
    Profile,
    PsAsyncSpeed,
    PsCoefficients,
    PsMemory,
    PsSpec,
    PsSyncSpeed,
    Quota,
    Requested,
    Resources,
    SiteRules,
    SpeedPoint,
    Spread,
    TableSpeed,
    WorkerSpec,
)

VALID: dict[str, Any] = {
    "version": "coplace/v1",
    "name": "two racks",
    "nodes": [
        {"name": "v1", "gpu_type": "V100", "gpu": 4, "cpu": "32", "memory": "128Gi", "labels": {"disk": "ssd"}},
        {"name": "t1", "gpu_type": "T4", "gpu": 4, "cpu": 32, "memory": "128Gi", "used": {"cpu": "500m"}},
        {"name": "c", "count": 2, "cpu": "16", "memory": 68719476736, "lost": "all"},
    ],
    "jobs": [
        {
            "name": "ring",
            "architecture": "allreduce",
            "worker": {"gpu": 1, "cpu": "4", "memory": "8Gi", "min": 1, "max": 4},
            "speed": {"form": "allreduce", "batch": 256, "types": {"V100": {"a": 0.001}, "T4": {"a": 0.002}}},
            "remaining": 1e6,
            "current": {"tasks": {"worker": {"v1": 2}}},
        },
        {
            "name": "servers",
            "architecture": "ps",
            "worker": {
                "profiles": [{"cpu": "2", "memory": "4Gi"}, {"cpu": "1", "memory": "4Gi", "slowdown": {"T4": 1.5}}],
                "max": 4,
            },
            "ps": {"cpu": 1, "memory": "2Gi", "max": 4, "memory_model": {"model": "100Mi"}},
            "speed": {"form": "ps-sync", "batch": 32, "types": {"V100": {"a": 0.01, "c": 0.001}}},
            "current": {"tasks": {"worker": {"v1": 1}, "ps": {"t1": 1}}, "profiles": {"worker": 1}},
        },
        {
            "name": "table",
            "architecture": "allreduce",
            "worker": {"gpu": 1, "cpu": "2", "slowdown": 1.25},
            "speed": {"form": "table", "points": [{"gpu_type": "V100", "workers": 1, "speed": 10.0}]},
            "observations": [{"at_seconds": 60, "gpu_type": "V100", "workers": 1, "speed": 9.5}],
        },
    ],
    "rules": {"quotas": {"default": {"gpu": 4}}, "move_budget": 1},
    "goal": "jct",
    "pressure_levels": [0.5, 1.0],
}
TYPES = ["V100", "T4"]
NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Z", "C"]), min_size=1, max_size=6) | st.sampled_from(
    ["1e3", "no", "12", "a b"]
)
NUMBERS = st.floats(1e-6, 1e12) | st.integers(1, 10**12).map(float)
SMALL = st.integers(1, 4)


@st.composite
def speeds(draw: st.DrawFn, form: str) -> Any:
    common = {
        "interference": Interference(slope=draw(st.floats(0, 3)), onset=draw(st.sampled_from([0.0, 0.5]))),
        "spread": Spread(slope=draw(st.floats(0, 3))),
    }
    types = draw(st.lists(st.sampled_from(TYPES), min_size=1, unique=True))
    positive = st.floats(1e-9, 10)
    if form == "table":
        points = draw(st.dictionaries(st.tuples(st.sampled_from(types), SMALL), NUMBERS, min_size=1))
        fields = [SpeedPoint(gpu_type=t, workers=w, speed=speed) for (t, w), speed in points.items()]
        return TableSpeed(form="table", points=tuple(fields), communication_share=draw(st.floats(0, 1)), **common)
    if form == "allreduce":
        ring = {t: AllReduceCoefficients(a=draw(positive), transfer_inter=draw(st.floats(0, 1))) for t in types}
        return AllReduceSpeed(form="allreduce", batch=draw(NUMBERS), types=ring, **common)
    servers = {t: PsCoefficients(a=draw(positive), c=draw(st.floats(0, 1)), e=draw(st.floats(0, 1))) for t in types}
    if form == "ps-sync":
        return PsSyncSpeed(form="ps-sync", batch=draw(NUMBERS), types=servers, **common)
    cost = draw(st.floats(0, 1))
    return PsAsyncSpeed(form="ps-async", batch=draw(NUMBERS), types=servers, staleness_cost=cost, **common)


@st.composite
def profiles(draw: st.DrawFn) -> tuple[Profile, ...]:
    slowdown = st.floats(1, 9) | st.dictionaries(st.sampled_from(TYPES), st.floats(1, 9))
    one = st.builds(Profile, cpu=st.integers(0, 4000), memory=st.integers(0, 4096), slowdown=slowdown)
    return tuple(draw(st.lists(one, min_size=1, max_size=3)))


@st.composite
def jobs(draw: st.DrawFn, name: str) -> Job:
    form = draw(st.sampled_from(["table", "allreduce", "ps-sync", "ps-async"]))
    least, more = draw(SMALL), draw(st.integers(0, 3))
    worker = WorkerSpec(
        gpu=draw(st.integers(0, 2)),
        profiles=draw(profiles()),
        intensity=draw(st.integers(0, 9)),
        min=least,
        max=least + more,
    )
    ps = None
    if form.startswith("ps"):
        memory = st.none() | st.builds(
            PsMemory, model=st.integers(1, 999), copies=st.floats(1, 4), base=st.integers(0, 99)
        )
        ps = PsSpec(profiles=draw(profiles()), max=draw(SMALL), memory_model=draw(memory))
    current = None
    if draw(st.booleans()):
        tasks: Any = {"worker": {"v0": least}} | ({"ps": {"t0": 1}} if ps else {})
        current = Allocation(tasks=tasks, profiles={"worker": len(worker.profiles) - 1} if draw(st.booleans()) else {})
    return Job(
        name=name,
        architecture="ps" if ps else "allreduce",
        worker=worker,
        ps=ps,
        speed=draw(speeds(form)),
        node_selector=draw(st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=1)),
        remaining=draw(st.none() | NUMBERS),
        requested=draw(st.sampled_from([None, Requested(workers=least, servers=1 if ps else 0)])),
        weight=draw(NUMBERS),
        tenant=draw(NAMES),
        deadline_seconds=draw(st.none() | st.floats(-1e9, 1e9)),
        pinned=current is not None and draw(st.booleans()),
        current=current,
        observations=draw(
            st.just(())
            | st.builds(Observation, at_seconds=NUMBERS, gpu_type=NAMES, workers=SMALL, speed=NUMBERS).map(
                lambda o: (o,)
            )
        ),
    )


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    big = {"gpu": 1000, "cpu": 10**6, "memory": 2**20}
    nodes = [Node(name="v0", gpu_type="V100", **big), Node(name="t0", gpu_type="T4", **big)]
    for name in draw(st.lists(NAMES.filter(lambda name: name not in ("v0", "t0")), max_size=3, unique=True)):
        lost = draw(st.sampled_from(["all", Resources(), Resources(cpu=1)]))
        size = {"cpu": draw(st.integers(2, 10**6)), "memory": draw(st.integers(2, 2**20))}
        nodes.append(Node(name=name, lost=lost, cordoned=draw(st.booleans()), rack=draw(st.none() | NAMES), **size))
    names = draw(st.lists(NAMES, max_size=3, unique=True))
    quota = st.builds(Quota, gpu=st.none() | SMALL, cpu=st.none() | st.integers(0, 10**6))
    rules = SiteRules(quotas=draw(st.dictionaries(NAMES, quota, max_size=2)), move_budget=draw(st.none() | SMALL))
    return Instance(
        name=draw(st.none() | NAMES),
        nodes=tuple(nodes),
        jobs=tuple(draw(jobs(name)) for name in names),
        rules=rules,
        goal=draw(st.sampled_from(["jct", "makespan"])),
        pressure_levels=draw(st.sampled_from([(), (0.25, 1.0)])),
        horizon_seconds=draw(st.none() | NUMBERS),
    )
