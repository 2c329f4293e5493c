"""Ten thousand random rounds with every rule, damage and fault: nothing that a solve says may be wrong."""

from __future__ import annotations

import contextlib
import math
import random
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from benchmarks.registry import WISHES, Figure, Target, benchmark
from benchmarks.round_chains import first_round, next_round
from benchmarks.round_faults import FAULTS, faulty

if TYPE_CHECKING:
    from coplace.instances import Instance, Plan
    from coplace.solver import Result

ROUNDS, SMOKE_ROUNDS = 10_000, 8
SHORTEST, LONGEST, SMOKE_LONGEST = 0.05, 2.0, 0.2
"""Time limits in seconds, drawn so that short ones are as frequent as long ones."""

LATE = 1.0
"""Seconds after its time limit by which a solve must have ended."""

MOST_ROUNDS = 6
"""Rounds of a chain."""

METHODS = {
    "auto": 30, "prices": 30, "greedy": 10, "keep-current": 7, "cpsat": 7, "mip": 5, "neighbourhoods": 6, "classes": 5
}  # fmt: skip
"""How often each method is drawn, in percent."""

FEW_PAIRS = 3_000
"""Nodes × jobs up to which a round is solved by more than one method, to know more plans."""

Kind = Literal["infeasible", "bound", "exception", "failure"]


@dataclass(frozen=True, slots=True)
class Wrong:
    """Something that went wrong, with all that reproduces it."""

    kind: Kind
    seed: int
    chain: int
    round: int
    words: str

    def __str__(self) -> str:
        again = f"python -m benchmarks rounds --seed {self.seed} --only {self.chain}"
        return f"{self.kind} in round {self.round} of chain {self.chain}: {self.words}\n  again: {again}"


@dataclass(slots=True)
class Played:
    """What was seen.

    Attributes:
        rounds: number of solves that were drawn; plans that were only made to have something to compare are not.
        late: seconds by which each solve ended after its limit, at least 0.
        wrong: what went wrong.
    """

    rounds: int = 0
    late: list[float] = field(default_factory=list)
    wrong: list[Wrong] = field(default_factory=list)

    def count(self, kind: Kind) -> int:
        """How often that went wrong."""
        return sum(each.kind == kind for each in self.wrong)


@benchmark("rounds", "10,000 random rounds with damage and faults: broken rules, wrong bounds, exceptions, lateness")
def rounds(smoke: bool) -> Iterable[Figure]:
    """Counts; seconds of wall time."""
    count = WISHES.count or (SMOKE_ROUNDS if smoke else ROUNDS)
    seen = play(WISHES.seed or 0, count, only=WISHES.only, longest=SMOKE_LONGEST if smoke else LONGEST)
    none = Target("<=", 0.0)
    yield Figure("rounds", float(seen.rounds), "")
    yield Figure("plans that break a rule", float(seen.count("infeasible")), "", none)
    yield Figure("bounds below a known plan", float(seen.count("bound")), "", none)
    yield Figure("exceptions", float(seen.count("exception")), "", none)
    yield Figure("failures of a solver without a fault", float(seen.count("failure")), "", none)
    yield Figure("solves more than a second late", float(sum(late > LATE for late in seen.late)), "", none)
    yield Figure("lateness, median", statistics.median(seen.late), "s")
    yield Figure("lateness, 99th percentile", sorted(seen.late)[int(0.99 * (len(seen.late) - 1))], "s")
    yield Figure("lateness, most", max(seen.late), "s")


def play(seed: int, count: int, *, only: int | None = None, longest: float = LONGEST) -> Played:
    """Play chains until *count* rounds are over or Ctrl-C is pressed, or one chain alone.

    What goes wrong is said on standard error at once.
    """
    seen = Played()
    chain = 0 if only is None else only
    while seen.rounds < count:
        said = len(seen.wrong)
        try:
            _chain(seen, seed, chain, longest, count)
        except KeyboardInterrupt:
            count = seen.rounds
        for each in seen.wrong[said:]:
            print(each, file=sys.stderr, flush=True)
        if only is not None:
            break
        chain += 1
    return seen


def _chain(seen: Played, seed: int, chain: int, longest: float, count: int) -> None:
    draw = random.Random(f"rounds-{seed}-{chain}")
    instance = first_round(draw)
    with _solver(draw) as again:
        for number in range(draw.randint(1, MOST_ROUNDS)):
            if seen.rounds >= count:
                return

            def wrong(kind: Kind, words: str, number: int = number) -> None:
                seen.wrong.append(Wrong(kind, seed, chain, number, words))

            plan = _round(seen, random.Random(f"{seed}-{chain}-{number}"), instance, longest, again, wrong)
            if plan is None:
                return
            # what comes next may depend on the clock through the plan, but through nothing else
            instance = next_round(random.Random(f"next-{seed}-{chain}-{number}"), instance, plan)


Again = Callable[["Instance", float, Callable[[], bool]], "Result"]


@contextlib.contextmanager
def _solver(draw: random.Random) -> Iterator[Again | None]:
    """A solver that keeps what it learns from round to round, for some of the chains."""
    if draw.random() > 0.4:
        yield None
        return
    from coplace.solver import RoundSolver

    with RoundSolver(method=draw.choice(("auto", "prices"))) as solver:
        yield lambda instance, limit, stop: solver.solve(instance, time_limit=limit, interrupted=stop)


def _round(
    seen: Played,
    draw: random.Random,
    instance: Instance,
    longest: float,
    again: Again | None,
    wrong: Callable[[Kind, str], None],
) -> Plan | None:
    """Solve a round, look at what the solve says, and return its plan; None after an exception."""
    limit = math.exp(draw.uniform(math.log(SHORTEST), math.log(longest)))
    method = draw.choices(list(METHODS), weights=list(METHODS.values()))[0]
    fault = draw.choice(FAULTS) if again is None and draw.random() < 0.3 else None
    if fault is not None and draw.random() < 0.7:
        method = draw.choice(("auto", "cpsat", "mip", "neighbourhoods", "classes"))
    end = draw.uniform(0, 2 * limit) if draw.random() < 0.05 else math.inf
    about = f"{instance.name}, {len(instance.nodes)} nodes, {len(instance.jobs)} jobs, {method}, {limit:.2f} s"
    about += f", fault {fault}" if fault else ""
    about += ", solver of the last round" if again else ""
    begin = time.monotonic()

    def stop() -> bool:
        return time.monotonic() > begin + end

    seen.rounds += 1
    try:
        result = _solved(draw, instance, method, limit, fault, again, stop)
        seen.late.append(max(0.0, time.monotonic() - begin - limit))
        if seen.late[-1] > LATE:
            print(f"late by {seen.late[-1]:.2f} s: {about}", file=sys.stderr, flush=True)
        _examine(draw, instance, result, fault, lambda kind, words: wrong(kind, f"{about}: {words}"))
    except Exception:
        wrong("exception", f"{about}: {traceback.format_exc()}")
        return None
    return result.plan


def _solved(
    draw: random.Random,
    instance: Instance,
    method: str,
    limit: float,
    fault: str | None,
    again: Again | None,
    stop: Callable[[], bool],
) -> Result:
    from coplace.solver import solve

    if again is not None:
        return again(instance, limit, stop)
    seed = draw.randrange(100)
    if fault is None:
        return solve(instance, method=method, time_limit=limit, seed=seed, interrupted=stop)
    with faulty(draw, fault, limit) as worker:
        return solve(instance, method=method, time_limit=limit, seed=seed, interrupted=stop, worker=worker)


def _examine(
    draw: random.Random, instance: Instance, result: Result, fault: str | None, wrong: Callable[[Kind, str], None]
) -> None:
    """Rules by the checker, bounds by every plan that is at hand."""
    from coplace.formulations.keep import keep_current
    from coplace.formulations.scoring import Scoring
    from coplace.solver import check, solve
    from coplace.solver.certificate import certify

    scoring = Scoring(instance)
    results = [result]
    if len(instance.nodes) * len(instance.jobs) <= FEW_PAIRS and draw.random() < 0.3:
        results += [solve(instance, method=method, time_limit=0.3) for method in ("greedy", "prices")]
    plans = {each.method: each.plan for each in results[1:]} | {"this": result.plan}
    plans["keep-current"] = keep_current(instance, scoring)
    known = {}
    for name, plan in plans.items():
        report = check(instance, plan, scoring)
        known[name] = report.objective
        if not report.feasible:
            wrong("infeasible", f"{name}: " + "; ".join(str(violation) for violation in report.violations))
    if known["this"] != result.objective:
        wrong("infeasible", f"objective {result.objective!r} is said to be {known['this']!r}")
    if known["this"] < known["keep-current"]:
        wrong("infeasible", f"worth less than keep-current: {known['this']!r} < {known['keep-current']!r}")
    best = max(known, key=lambda name: known[name])
    for each in results:
        bounds = {"certified bound": each.certified_bound}
        if fault != "lie" or each is not result:
            bounds["bound"] = each.bound
        if each.prices is not None and draw.random() < 0.3:
            bounds["bound by certify"] = certify(instance, each.prices)
        for name, bound in bounds.items():
            if bound is not None and bound < known[best] * (1 - 1e-7) - 1e-9:
                wrong("bound", f"{name} {bound!r} of {each.method} is below {known[best]!r} of {best}")
        if each.reason in ("backend_failure", "memory") and (fault is None or each is not result):
            wrong("failure", f"{each.method}: {each.detail}")
