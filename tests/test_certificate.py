"""Certificates: prices alone bound every plan, and a result file that says otherwise than they do is caught."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from coplace.cli.app import app
from coplace.formulations.relaxation import PricedRow, Relaxation, Row, all_choices
from coplace.formulations.scoring import Scoring
from coplace.instances import InputError, Instance, parse_instance, to_document
from coplace.instances.generation import generate
from coplace.solver import solve
from coplace.solver.certificate import certify
from coplace.solver.result_file import read_plan
from coplace.solver.search import Search
from tests.building import instance as build
from tests.building import node, ps_job
from tests.oracle.tiny import best_of_tiny, tiny_instance

CHUNK = 50

GOOD = PricedRow(Row("pool", "gpu", "a100", 0, 1), 0.5)


def random_rows(instance: Instance, draw: np.random.Generator) -> list[PricedRow]:
    """Any rows at all, those that no program would have among them, with any prices."""
    levels = max(1, len(instance.pressure_levels))
    types = [None, *instance.gpu_types]
    rows = set()
    for _ in range(int(draw.integers(1, 12))):
        resource = str(draw.choice(["gpu", "cpu", "memory", *["intensity"] * bool(instance.pressure_levels)]))
        size = int(draw.integers(1, 60)) if resource in ("gpu", "intensity") else 1
        gpu_type = types[int(draw.integers(len(types)))]
        rows.add(Row("pool", resource, gpu_type, int(draw.integers(levels)), size if draw.random() < 0.7 else 1))
    for tenant, quota in instance.rules.quotas.items():
        limits = zip(("gpu", "cpu", "memory"), quota.vector, strict=True)
        rows |= {Row("quota", resource, tenant=tenant) for resource, limit in limits if limit is not None}
    if instance.rules.move_budget is not None:
        rows.add(Row("moves"))
    unit = {"cpu": 1e-3, "memory": 1e-3, "intensity": 1e-2}
    return [
        PricedRow(row, float(draw.exponential(unit.get(str(row.resource), 1.0)) * 10.0 ** draw.integers(-2, 2)))
        for row in sorted(rows, key=Row.order)
        if draw.random() < 0.7
    ]


@pytest.mark.parametrize("chunk", range(20))
def test_no_prices_give_a_bound_below_the_best_plan(chunk: int) -> None:
    """Brute force over a thousand instances: prices of the program, other ones of its rows, and of any rows."""
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        instance = tiny_instance(seed)
        draw, (best, _) = np.random.default_rng(seed), best_of_tiny(seed)
        scoring = Scoring(instance)
        relaxation = Relaxation(all_choices(instance, scoring))
        prices = relaxation.best_prices()
        bound = certify(instance, relaxation.priced(prices), scoring=scoring)
        assert bound >= best * (1 - 1e-12), instance.name
        assert bound == pytest.approx(relaxation.bound(prices).bound, rel=1e-11, abs=1e-300)
        for each in (prices * draw.uniform(0.3, 1.7, len(prices)), draw.exponential(0.1, len(prices))):
            assert relaxation.bound(each).bound >= best * (1 - 1e-12), instance.name
        assert certify(instance, random_rows(instance, draw), scoring=scoring) >= best * (1 - 1e-12), instance.name


def test_without_prices_every_job_gets_its_best() -> None:
    instance = tiny_instance(3)
    relaxation = Relaxation(all_choices(instance))
    assert certify(instance, ()) == relaxation.bound(np.zeros(len(relaxation.rows))).bound


def test_no_solver_is_asked() -> None:
    script = """
import sys
from coplace.instances.generation import generate
from coplace.formulations.relaxation import PricedRow, Row
from coplace.solver.certificate import certify
instance = generate("ps-mix", nodes=4, jobs=6, seed=1)
rows = [PricedRow(Row("pool", "gpu", gpu_type, 0, 1), 0.1) for gpu_type in instance.gpu_types]
assert certify(instance, rows) > 0
print([name for name in ("ortools", "highspy", "pulp", "numba") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([GOOD._replace(price=-1e-9)], "prices[0].price: must be a finite number and not negative; found -1e-09"),
        ([GOOD._replace(price=float("nan"))], "prices[0].price: must be a finite number"),
        ([GOOD._replace(price=float("inf"))], "prices[0].price: must be a finite number"),
        ([GOOD._replace(price=1e308)], "so high that no finite bound follows"),
        ([GOOD, GOOD], "prices[1].key: must stand only once"),
        ([GOOD._replace(row=Row("pool", "gpu", "a10", 0))], "prices[0].key.type: must be a GPU type of the cluster"),
        ([GOOD._replace(row=Row("pool", "disk", "a100", 0))], "prices[0].key.resource: must be one of gpu, cpu"),
        ([GOOD._replace(row=Row("pool", "cpu", "a100", 0, 2))], "prices[0].key.size: must be 1 for cpu; found 2"),
        ([GOOD._replace(row=Row("pool", "gpu", "a100", 0, 0))], "prices[0].key.size: must be at least 1; found 0"),
        ([GOOD._replace(row=Row("pool", "gpu", "a100", 1))], "prices[0].key.level: must be a level of the ladder, 0"),
        ([GOOD._replace(row=Row("pool", "gpu", "a100", -1))], "prices[0].key.level: must be a level of the ladder, 0"),
        ([GOOD._replace(row=Row("pool", "intensity", "a100", 0))], "prices[0].key.resource: pressure is off"),
        ([GOOD._replace(row=Row("quota", "gpu", tenant="x"))], "prices[0].key: must be a tenant and a resource with a"),
        ([GOOD._replace(row=Row("quota", "cpu", tenant="t"))], "prices[0].key: must be a tenant and a resource with a"),
        ([GOOD._replace(row=Row("moves"))], "prices[0].row: there is no move budget in this instance"),
    ],
)
def test_what_is_no_price_is_refused(rows: list[PricedRow], words: str) -> None:
    case = build([node(gpu=4)], [ps_job(tenant="t")], rules={"quotas": {"t": {"gpu": 2}}})
    assert certify(case, [GOOD, PricedRow(Row("quota", "gpu", tenant="t"), 0.1)]) > 0
    with pytest.raises(InputError) as error:
        certify(case, rows)
    assert words in str(error.value)


# --- what a search makes of prices ----------------------------------------------------------------------------------


def search_of(instance: Instance) -> Search:
    return Search(Scoring(instance), deadline=0.0, gap=0.0, seed=0, interrupted=lambda: False)


def test_a_search_keeps_the_prices_with_the_lowest_bound() -> None:
    instance = generate("ps-mix", nodes=4, jobs=8, seed=1)
    relaxation = Relaxation(all_choices(instance))
    best = relaxation.priced(relaxation.best_prices())
    search = search_of(instance)
    assert search.priced([])
    loose = search.certified_bound
    assert search.prices == ()
    assert search.priced([*reversed(best), PricedRow(Row("pool", "cpu", None, 0), 0.0)])
    assert search.prices == best
    assert search.bound == search.certified_bound == pytest.approx(certify(instance, best), rel=1e-12)
    assert search.priced([])
    assert search.prices == best
    assert loose is not None
    assert search.certified_bound is not None
    assert search.certified_bound < loose
    assert search.bounded(search.certified_bound * 0.999)  # a solver may know more
    assert search.bound == search.certified_bound * 0.999
    assert search.bounded(loose)
    assert search.bound == search.certified_bound * 0.999


def test_prices_below_a_known_plan_are_not_taken() -> None:
    instance = generate("ps-mix", nodes=4, jobs=8, seed=1)
    search = search_of(instance)
    search.offer(solve(instance, method="greedy").plan)
    assert not search.priced([], search.objective * 0.9)
    assert (search.prices, search.certified_bound, search.bound) == (None, None, None)
    fresh = search_of(instance)
    assert fresh.priced([], search.objective * 0.9)  # before the plan was known
    fresh.offer(search.plan)
    assert (fresh.prices, fresh.certified_bound, fresh.bound, fresh.reason) == (None, None, None, "backend_failure")


# --- result files ---------------------------------------------------------------------------------------------------


@cache
def solved() -> tuple[dict[str, Any], dict[str, Any]]:
    """An instance with a ladder, a quota and a budget, and the result of it, as documents."""
    document: dict[str, Any] = to_document(generate("ps-mix", nodes=6, jobs=14, seed=3))
    tenant = document["jobs"][0].get("tenant", "default")
    document["rules"] = {"quotas": {tenant: {"gpu": 4}}, "move_budget": 1}
    instance = parse_instance(document)
    result = solve(instance, method="prices", time_limit=3)
    assert result.reason != "backend_failure", result.detail
    return document, json.loads(json.dumps(result.to_document(instance)))


def checked(folder: Path, result: dict[str, Any], *options: str) -> tuple[int, str]:
    (folder / "instance.json").write_text(json.dumps(solved()[0]), encoding="utf-8")
    (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")
    done = CliRunner().invoke(app, ["check", str(folder / "instance.json"), str(folder / "result.json"), *options])
    return done.exit_code, done.stdout + done.stderr


def test_a_result_carries_its_certificate(tmp_path: Path) -> None:
    """Bound and gap follow from the two files alone."""
    document, result = solved()
    assert result["prices"]
    assert all(row["price"] > 0 for row in result["prices"])
    assert {row["row"] for row in result["prices"]} <= {"pool", "quota", "moves"}
    assert result["objective"] <= result["bound"] <= result["certified_bound"]
    code, out = checked(tmp_path, result)
    assert code == 0, out
    assert "no plan is worth more than " in out
    assert out.count(", as the file states") == 2
    code, out = checked(tmp_path, result, "--json")
    said = json.loads(out)
    assert code == 0
    assert said["certified_bound"] == pytest.approx(result["certified_bound"], rel=1e-9)
    assert said["certified_gap"] == pytest.approx(result["certified_gap"], abs=1e-9)
    assert (said["claims_hold"], said["wrong_claims"]) == (True, [])
    assert said["stated_bound"] == result["bound"]
    read = read_plan(tmp_path / "result.json")
    assert read.prices is not None
    rows = [{"row": row.kind, "key": row.key(), "price": price} for row, price in read.prices]
    assert rows == result["prices"]
    assert certify(parse_instance(document), read.prices) == pytest.approx(result["certified_bound"], rel=1e-9)


def change(key: str, factor: float) -> Callable[[dict[str, Any]], None]:
    def apply(result: dict[str, Any]) -> None:
        result[key] *= factor

    return apply


def below_the_objective(result: dict[str, Any]) -> None:
    result["bound"] = result["objective"] * 0.999
    result["gap"] = 0.0


def dearer(result: dict[str, Any]) -> None:
    result["prices"][0]["price"] *= 1.3


def one_row_less(result: dict[str, Any]) -> None:
    del result["prices"][0]


def other_size(result: dict[str, Any]) -> None:
    pools = [row for row in result["prices"] if row["row"] == "pool" and row["key"]["resource"] == "gpu"]
    pools[0]["key"]["size"] = 7


def no_prices(result: dict[str, Any]) -> None:
    result["prices"] = None


def certain(result: dict[str, Any]) -> None:
    result["certified_bound"], result["certified_gap"] = result["objective"], 0.0


def other_plan(result: dict[str, Any]) -> None:
    del result["plan"][next(iter(result["plan"]))]


def unknown_row(result: dict[str, Any]) -> None:
    result["prices"].append({"row": "quota", "key": {"tenant": "nobody", "resource": "gpu"}, "price": 1.0})


@pytest.mark.parametrize(
    ("tamper", "words"),
    [
        (below_the_objective, "bound: the file states "),
        (change("gap", 0.5), "gap: the file states "),
        (change("certified_bound", 0.999), "certified_bound: the file states "),
        (change("certified_bound", 1.001), "certified_bound: the file states "),
        (change("certified_gap", 0.5), "certified_gap: the file states "),
        (change("objective", 1.01), "but the file states "),
        (dearer, "certified_bound: the file states "),
        (one_row_less, "certified_bound: the file states "),
        (other_size, "certified_bound: the file states "),
        (no_prices, "and nothing that it follows from"),
        (certain, "certified_gap: the file states 0, and "),
        (other_plan, "but the file states "),
        (unknown_row, "prices: no bound follows from them: prices["),
    ],
)
def test_a_tampered_result_is_caught(tamper: Callable[[dict[str, Any]], None], words: str, tmp_path: Path) -> None:
    result = copy.deepcopy(solved()[1])
    tamper(result)
    code, out = checked(tmp_path, result)
    assert code == 3, out
    assert words in out
    code, out = checked(tmp_path, result, "--json")
    said = json.loads(out[out.index("{") :])
    assert code == 3
    assert said["claims_hold"] is (tamper.__name__ == "apply" and words.startswith("but"))


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"row": "pool", "key": {"resource": "gpu", "type": None, "level": 0, "size": 1}, "price": -1.0}, "price"),
        ({"row": "pool", "key": {"resource": "gpu", "type": None, "level": 0}, "price": 1.0}, "size"),
        ({"row": "pond", "key": {}, "price": 1.0}, "row: must be one of pool, quota, moves; found 'pond'"),
        ({"key": {}, "price": 1.0}, "needs a row"),
        ({"row": "moves", "key": {"level": 1}, "price": 1.0}, "level"),
        ({"row": "pool", "key": {"resource": "gpu", "type": None, "level": 0, "size": 1}, "price": "1"}, "price"),
    ],
)
def test_malformed_prices_are_wrong_input(entry: dict[str, Any], words: str, tmp_path: Path) -> None:
    code, out = checked(tmp_path, solved()[1] | {"prices": [entry]})
    assert code == 2
    assert "prices[0]" in out
    assert words in out


def test_another_goal_is_not_held_against_the_file(tmp_path: Path) -> None:
    code, out = checked(tmp_path, solved()[1], "--goal", "throughput", "--json")
    said = json.loads(out)
    assert code == 0
    assert said["claims_hold"] is None
    assert said["certified_bound"] >= said["objective"]


@pytest.mark.parametrize("method", ["greedy", "keep-current"])
def test_methods_without_prices_state_none(method: str) -> None:
    instance = generate("ps-mix", nodes=4, jobs=8, seed=1)
    document = solve(instance, method=method).to_document(instance)
    assert (document["prices"], document["certified_bound"], document["certified_gap"]) == (None, None, None)


@pytest.mark.parametrize("method", ["auto", "cpsat", "mip"])
def test_exact_methods_carry_a_certificate(method: str) -> None:
    instance = generate("ps-mix", nodes=3, jobs=5, seed=4)
    result = solve(instance, method=method, time_limit=30)
    assert result.prices is not None
    assert result.bound is not None
    assert result.certified_bound is not None
    assert result.objective <= result.bound <= result.certified_bound == certify(instance, result.prices)
