"""The catalogue's figures are those that the measured data gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import fit_catalogue
from benchmarks.fit_catalogue import Fit
from coplace.instances.generation import catalogue, network
from tests.data import data_dir


@pytest.fixture(scope="module")
def data() -> Path:
    return data_dir()


def _committed(networks: tuple[network.Network, ...], name: str, gpu_type: str) -> dict[str, float]:
    found = next(known for known in networks if known.name == name)
    return found.measured[gpu_type].model_dump()


def _agrees(fitted: Fit, committed: dict[str, float], most: float) -> None:
    assert committed == pytest.approx(fitted.coefficients, rel=2e-3)
    assert fitted.mean_error <= most


def test_dl2(data: Path) -> None:
    names = {"cnn-text-classification": "cnn-text"}
    for name, fitted in fit_catalogue.dl2(data).items():
        _agrees(fitted, _committed(catalogue.PS_NETWORKS, names.get(name, name), "p100"), 0.10)


def test_inception_v3(data: Path) -> None:
    for gpu_type, fitted in fit_catalogue.inception_v3(data).items():
        _agrees(fitted, _committed(catalogue.PS_NETWORKS, "inception-v3", gpu_type), 0.02)


def test_cmdare_and_transient(data: Path) -> None:
    fits = fit_catalogue.cmdare(data)
    ratios = fit_catalogue.single_worker_ratio(data)
    for (name, gpu_type), fitted in fits.items():
        _agrees(fitted, _committed(catalogue.PS_NETWORKS, name, gpu_type), 0.10)
        if gpu_type == "p100" and name != "resnet-32":
            scaled = fitted.coefficients | {"a": fitted.coefficients["a"] / ratios[name]}
            assert _committed(catalogue.PS_NETWORKS, name, "v100") == pytest.approx(scaled, rel=2e-3)
    _agrees(fit_catalogue.transient(data), _committed(catalogue.PS_NETWORKS, "resnet-32", "v100"), 0.06)


def test_vgg_scales_resnet_by_the_parameters(data: Path) -> None:
    vgg = _committed(catalogue.PS_NETWORKS, "vgg-16", "k80")
    sizes = fit_catalogue.tensors(data)
    ratio = sizes["vgg"].parameters / sizes["resnet-50"].parameters
    resnet = fit_catalogue.dl2(data)["resnet-50"].coefficients
    assert vgg["a"] == fit_catalogue.vgg_compute(data)
    assert vgg["c"] == pytest.approx(resnet["c"] * ratio, rel=2e-3)
    assert vgg["d"] == pytest.approx(resnet["d"] * ratio, rel=2e-3)


def test_gavel(data: Path) -> None:
    for (name, gpu_type), fitted in fit_catalogue.gavel(data).items():
        _agrees(fitted, _committed(catalogue.ALLREDUCE_NETWORKS, name.lower(), gpu_type), 0.20)


def test_elasticflow(data: Path) -> None:
    names = {"inception3": "inception-v3", "resnet50": "resnet-50", "vgg16": "vgg-16"}
    for name, fitted in fit_catalogue.elasticflow(data).items():
        _agrees(fitted, _committed(catalogue.ALLREDUCE_NETWORKS, names.get(name, name), "a100"), 0.04)


def test_ratios_between_gpu_types(data: Path) -> None:
    fitted = fit_catalogue.type_ratios(data)
    assert fitted.pop("a100_v100")["a100"] == catalogue.A100_OVER_V100
    for name, ratios in fitted.items():
        committed = catalogue.RELATIVE_SPEED[name.lower()]
        assert {gpu_type: committed[gpu_type] for gpu_type in ratios} == ratios


def test_cpus_neighbours_and_further_gpus(data: Path) -> None:
    curves = fit_catalogue.cpu_curves(data)
    for name, curve in catalogue.CPU_SLOWDOWN.items():
        assert curve == {cpus: curves[name][cpus] for cpus in curve}
    neighbours = {name.lower(): value for name, value in fit_catalogue.neighbour_cost(data).items()}
    assert {name: neighbours[name] for name in catalogue.NEIGHBOUR} == catalogue.NEIGHBOUR
    assert fit_catalogue.gpus_per_worker_efficiency(data) == network.FURTHER_GPU_COST


def test_spread_follows_the_bandwidths(data: Path) -> None:
    gaps = fit_catalogue.bandwidth_gap(data)
    slopes = {known.name: known.spread for known in catalogue.PS_NETWORKS}
    for name, gap in gaps.items():
        assert slopes[name.removesuffix("-classification")] == min(gap, catalogue.MAX_SPREAD)


def test_parameters_and_tensors(data: Path) -> None:
    tensors = fit_catalogue.tensors(data)
    known = {found.name: found for found in catalogue.PS_NETWORKS}
    for name, theirs in (("resnet-50", "resnet-50"), ("inception-bn",) * 2, ("inception-v3",) * 2, ("vgg-16", "vgg")):
        assert known[name].parameters_mib == -(-tensors[theirs].parameters * 4 // 2**20)
        assert known[name].tensor_mib == pytest.approx(tensors[theirs].largest_mib, abs=0.5)
        assert tensors[theirs].imbalance <= 1.05


def test_nnls_agrees_with_brute_force() -> None:
    """No data needed: the fit is not beaten by any non-negative point nearby, and finds what it was made from."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        matrix, target = rng.random((12, 4)), rng.normal(size=12)
        found = fit_catalogue.nnls(matrix, target)
        best = float(np.sum((matrix @ found - target) ** 2))
        for _ in range(200):
            other = np.maximum(0, found + rng.normal(scale=0.1, size=4))
            assert float(np.sum((matrix @ other - target) ** 2)) >= best - 1e-9
        truth = np.maximum(0, rng.normal(size=4))
        assert fit_catalogue.nnls(matrix, matrix @ truth) == pytest.approx(truth, abs=1e-9)


def test_missing_data_says_what_to_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit_catalogue.main(["--data", str(tmp_path / "none")]) == 2
    assert "COPLACE_DATA" in capsys.readouterr().err
