"""``coplace explain``: why a job waits or runs as it does, and what more of anything would be worth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from coplace.instances import Instance
    from coplace.instances.plan import Plan


def explain(
    instance_file: Annotated[Path, typer.Argument(metavar="INSTANCE", help="Instance, YAML or JSON.")],
    plan_file: Annotated[
        Path, typer.Argument(metavar="RESULT", help="Result of `coplace solve`, or a mapping job: {tasks: ...}.")
    ],
    job: Annotated[str | None, typer.Argument(metavar="JOB", help="Job to explain; by default the cluster is.")] = None,
    verify: Annotated[
        int, typer.Option(metavar="N", min=0, help="Of the cluster, measure the N best estimates by solving.")
    ] = 0,
    time_limit: Annotated[
        float, typer.Option(metavar="SECONDS", help="Wall time of these solves, or of the changes that admit a job.")
    ] = (10.0),
    seed: Annotated[int, typer.Option(help="Of these solves.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Explain a plan.

    Of a waiting job: what holds it, and the smallest change of each kind that would admit it, each with a plan that
    has been checked. Of a running job: what it gains and costs, and the next best way to run it. Without a job: what
    prices say that more nodes, quota or moves are worth.
    """
    from coplace.cli import output as out
    from coplace.cli.arguments import named_as_options
    from coplace.solver.explain import explain as explain_plan

    instance, plan = _read(instance_file, plan_file)
    with named_as_options(job="JOB", plan="RESULT"):
        explanation = explain_plan(instance, plan, job, verify=verify, time_limit=time_limit, seed=seed)
    if as_json:
        out.emit_json(explanation.to_document())
        return
    from coplace.cli.report.explanation import explanation_report

    console = out.console()
    name = instance.name or instance_file.stem
    parts = explanation_report(explanation, name, console.width, out.symbols())
    out.emit_rich(console, *parts)


def _read(instance_file: Path, plan_file: Path) -> tuple[Instance, Plan]:
    """The instance, for the goal of the plan, and the plan.

    Raises:
        InputError: one of the files is wrong, or the plan was made for another instance.
    """
    from coplace.cli.arguments import with_goal
    from coplace.instances import InputError, Problem, instance_sha256, read_instance
    from coplace.solver.result_file import read_plan

    instance = read_instance(instance_file)
    stated = read_plan(plan_file)
    instance = with_goal(instance, stated.goal)
    if stated.instance_sha256 is not None and stated.instance_sha256 != instance_sha256(instance):
        rule, mend = f"must be that of {instance_file}", "the plan was made for another instance; solve this one anew"
        raise InputError([Problem("instance.sha256", rule, f"{stated.instance_sha256[:12]}…", mend)], str(plan_file))
    return instance, stated.plan
