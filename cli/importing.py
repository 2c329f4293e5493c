"""``coplace import``: the records of other systems as instance files."""

from __future__ import annotations

import math
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from coplace.instances.importing import Imported

Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="File (.json, .yaml); without it, JSON is printed."),
]
TIMES = ["%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%d %H:%M:%S"]


def import_openb(
    nodes: Annotated[Path, typer.Argument(metavar="NODES.csv", help="Table of nodes.")],
    pods: Annotated[Path | None, typer.Argument(metavar="PODS.csv", help="Table of pods; without it, no jobs.")] = None,
    output: Output = None,
    at_seconds: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Only the pods that exist at that moment of the trace.")
    ] = None,
    max_jobs: Annotated[int | None, typer.Option(min=0, help="Only so many pods, those submitted first.")] = None,
    phases: Annotated[
        list[str] | None,
        typer.Option("--phase", help="Phase of the pods to take; may be repeated. Default: Running and Pending."),
    ] = None,
) -> None:
    """Import the openb tables of a production cluster.

    What was taken, rounded or left out is said on standard error.
    """
    from coplace.cli.instance_output import check_instance_target
    from coplace.instances import InputError, Problem, importing

    check_instance_target(output, nodes, pods)
    if at_seconds is not None and not math.isfinite(at_seconds):
        raise InputError([Problem("--at-seconds", "must be a finite number of seconds", str(at_seconds))])
    _put(
        importing.import_openb(
            nodes, pods, at_seconds=at_seconds, max_jobs=max_jobs, phases=phases or ("Running", "Pending")
        ),
        output,
    )


def import_kubernetes(
    nodes: Annotated[Path, typer.Argument(metavar="NODES.json", help="From `kubectl get nodes -o json`.")],
    pods: Annotated[
        Path | None, typer.Argument(metavar="PODS.json", help="From `kubectl get pods -A -o json`.")
    ] = None,
    output: Output = None,
    gpu_resources: Annotated[
        list[str] | None,
        typer.Option(
            "--gpu-resource", help="Resource that counts as GPUs; may be repeated. Default: NVIDIA's and AMD's."
        ),
    ] = None,
    gpu_type_label: Annotated[
        str | None, typer.Option(help="Label of the nodes with their GPU type. Default: that of NVIDIA's discovery.")
    ] = None,
    ignored_taints: Annotated[
        list[str] | None,
        typer.Option("--ignored-taint", help="Key of a taint that does not cordon a node; may be repeated."),
    ] = None,
    pending_as_jobs: Annotated[
        bool, typer.Option(help="Whether pending pods with GPUs become waiting jobs or are only counted.")
    ] = True,
    now: Annotated[
        datetime | None,
        typer.Option(
            formats=TIMES,
            metavar="TIME",
            help="Time of the listing (2024-05-31T18:00:00+0000), for the age of pending pods.",
        ),
    ] = None,
) -> None:
    """Import what kubectl lists.

    What was taken, rounded or left out is said on standard error.
    """
    from coplace.cli.arguments import named_as_options
    from coplace.cli.instance_output import check_instance_target
    from coplace.instances import importing
    from coplace.instances.importing.kubernetes import GPU_RESOURCES, GPU_TYPE_LABEL

    check_instance_target(output, nodes, pods)
    with named_as_options():
        imported = importing.import_kubernetes(
            nodes,
            pods,
            gpu_resources=gpu_resources or GPU_RESOURCES,
            gpu_type_label=gpu_type_label or GPU_TYPE_LABEL,
            ignored_taints=ignored_taints or None,
            pending_as_jobs=pending_as_jobs,
            now=now,
        )
    _put(imported, output)


def _put(imported: Imported, output: Path | None) -> None:
    from coplace.cli.instance_output import put_instance
    from coplace.cli.output import note

    put_instance(imported.instance, output)
    for line in imported.lines:
        note(line)
