"""``coplace check``: is a plan feasible, and what is it worth?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from coplace.formulations.rules import Violation
    from coplace.instances import Instance
    from coplace.solver import CheckReport
    from coplace.solver.result_file import ResultFile

TOLERANCE = 1e-6
"""Relative difference up to which two objectives are the same: the file may have been written by other software."""

CONTRADICTED = 3
"""Exit code for a plan that breaks a rule, or whose file says of it what is not so."""


def check(
    instance_file: Annotated[Path, typer.Argument(metavar="INSTANCE", help="Instance, YAML or JSON.")],
    plan_file: Annotated[
        Path, typer.Argument(metavar="PLAN", help="Result of `coplace solve`, or a mapping job: {tasks: ...}.")
    ],
    goal: Annotated[
        str | None, typer.Option(help="Score for this goal; by default the one PLAN states, else that of INSTANCE.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check a plan, and recompute its objective and the bound that follows from its prices.

    Every rule of docs/model.md is checked from the instance alone; nothing else that the plan's file says is trusted.
    Exit code 3 if the plan breaks a rule, or its file states another objective, or a bound or gap that does not follow.
    """
    from coplace.cli.arguments import check_goal, with_goal
    from coplace.cli.claims import claims_of
    from coplace.cli.output import emit, emit_json, note
    from coplace.instances import instance_sha256, read_instance
    from coplace.solver import check as check_plan
    from coplace.solver.result_file import read_plan

    check_goal(goal)
    stated_for = read_instance(instance_file)
    stated = read_plan(plan_file)
    stated_for = with_goal(stated_for, stated.goal)  # of which the file gives hash and objective
    instance = with_goal(stated_for, goal)
    report = check_plan(instance, stated.plan)
    claims = claims_of(instance, report.objective, stated)
    same = None if stated.instance_sha256 is None else stated.instance_sha256 == instance_sha256(stated_for)
    if same is False:
        note(f"coplace: {plan_file}: warning: the plan was made for another instance (its SHA-256 differs)")
    comparable = instance.goal == stated_for.goal
    contradicts = comparable and _contradicts(report, stated)
    if as_json:
        document = _document(report, stated, same, instance.goal, stated_for.goal)
        emit_json(document | claims.document(comparable))
    else:
        objective = _objective(report, stated, contradicts, instance.goal, stated_for.goal)
        lines = _lines(instance, instance_file, report, stated, [objective, *claims.lines(comparable)])
        emit("".join(f"{line}\n" for line in lines))
    if not report.feasible or contradicts or (comparable and claims.wrong):
        raise typer.Exit(CONTRADICTED)


def _contradicts(report: CheckReport, stated: ResultFile) -> bool:
    """Whether the file states another objective than that of the same goal."""
    if stated.objective is None:
        return False
    largest = max(abs(stated.objective), abs(report.objective))
    return abs(stated.objective - report.objective) > TOLERANCE * largest


def _document(
    report: CheckReport, stated: ResultFile, same: bool | None, goal: str, stated_goal: str
) -> dict[str, Any]:
    return {
        "feasible": report.feasible,
        "violations": [
            {
                "rule": v.rule,
                "message": v.message,
                "job": v.job,
                "node": v.node,
                "resource": v.resource,
                "amount": v.amount,
                "limit": v.limit,
            }
            for v in report.violations
        ],
        "goal": goal,
        "objective": report.objective,
        "stated_goal": stated_goal,
        "stated_objective": stated.objective,
        "same_instance": same,
        "moved": list(report.moved),
    }


def _objective(report: CheckReport, stated: ResultFile, contradicts: bool, goal: str, stated_goal: str) -> str:
    objective = f"objective {report.objective:.9g} for goal {goal}"
    if stated.objective is None:
        return objective
    if goal != stated_goal:
        return f"{objective}; the file states {stated.objective:.9g} for goal {stated_goal}"
    if contradicts:
        return f"{objective}, but the file states {stated.objective:.9g}"
    return f"{objective}, as the file states"


def _lines(instance: Instance, file: Path, report: CheckReport, stated: ResultFile, worth: list[str]) -> list[str]:
    from coplace.cli.output import printable
    from coplace.cli.report.numbers import counted

    broken = len(report.violations)
    verdict = "feasible" if report.feasible else f"infeasible, {counted(broken, 'violation')}"
    lines = [f"{instance.name or file.stem}, {counted(len(stated.plan), 'job')} planned: {verdict}"]
    lines += [
        f"  {violation.rule}: {violation.message}{_nearest(instance, violation)}" for violation in report.violations
    ]
    lines += worth
    lines.append(f"{counted(len(report.moved), 'running job')} moved, resized or stopped")
    return [printable(line) for line in lines]


def _nearest(instance: Instance, violation: Violation) -> str:
    """Advice for a name that does not exist."""
    from coplace.instances.consistency import near

    if violation.rule != "unknown":
        return ""
    advice = ""
    if violation.node is not None:
        advice = near(violation.node, instance.node)
    elif violation.job is not None and violation.job not in instance.job:
        advice = near(violation.job, instance.job)
    return f"; {advice}" if advice else ""
