"""The shipped examples."""

from __future__ import annotations

from pathlib import Path

import pytest

import coplace.instances
from coplace.instances import read_instance
from coplace.instances.generation.openb64 import openb64, openb64_yaml

EXAMPLES = Path(coplace.instances.__file__).parent / "examples"
NAMES = ("five-lines", "moving-pays", "nothing-fits", "openb-64")


def test_all_examples_are_known() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.yaml")} >= set(NAMES)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_example_reads_and_explains_itself(path: Path) -> None:
    instance = read_instance(path)
    assert instance.nodes
    assert instance.jobs
    assert "# " in path.read_text(encoding="utf-8")


def test_five_lines_has_five_lines() -> None:
    assert len((EXAMPLES / "five-lines.yaml").read_text(encoding="utf-8").splitlines()) == 5
    instance = read_instance(EXAMPLES / "five-lines.yaml")
    assert (len(instance.nodes), len(instance.jobs)) == (2, 3)


def test_openb_64_is_what_its_generator_says() -> None:
    assert (EXAMPLES / "openb-64.yaml").read_text(encoding="utf-8") == openb64_yaml()
    instance = read_instance(EXAMPLES / "openb-64.yaml")
    assert instance == openb64()
    assert len(instance.nodes) == 64
    assert sum(job.running for job in instance.jobs) == 22
    assert sum(node.gpu > 0 for node in instance.nodes) > 45
    held = sum(j.worker.gpu * j.current.workers for j in instance.jobs if j.current and j.tenant == "vision")
    assert held <= instance.rules.quotas["vision"].vector[0]  # type: ignore[operator]


def test_nothing_fits_runs_nothing_by_any_measure() -> None:
    """Each job alone breaks a limit: a task larger than the largest node, or a gang larger than the cluster."""
    instance = read_instance(EXAMPLES / "nothing-fits.yaml")
    assert instance.job["wide-worker"].worker.gpu > max(node.gpu for node in instance.nodes)
    assert instance.job["long-gang"].worker.min > sum(node.gpu for node in instance.nodes)
    assert instance.job["hungry-worker"].worker.profiles[0].cpu > max(node.cpu for node in instance.nodes)
    ps = instance.job["huge-model"].ps
    assert ps is not None
    assert ps.memory_model is not None
    assert ps.memory_model.model * 2 / ps.max > max(node.memory for node in instance.nodes)
