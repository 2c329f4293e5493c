"""What the wheel and the sdist hold. A build that loses the links to the rooms exits 0 and ships nothing."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = sorted(path.name for path in (ROOT / "coplace").iterdir() if path.is_symlink())


def expected() -> set[str]:
    """Every file of the package, by its path in the wheel."""
    names = {f"coplace/{path.name}" for path in (ROOT / "coplace").glob("*.py")} | {"coplace/py.typed"}
    for room in ROOMS:
        paths = [*(ROOT / room).rglob("*.py"), *(ROOT / room).glob("examples/*.yaml")]
        names |= {f"coplace/{path.relative_to(ROOT).as_posix()}" for path in paths}
    return names


def run(command: Sequence[str | Path], cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        command, cwd=cwd, env=os.environ | environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel built from it, of a clean copy of the package."""
    base = tmp_path_factory.mktemp("packaging")
    copy = base / "checkout"
    copy.mkdir()
    for name in ["pyproject.toml", "README.md", "LICENSE"]:
        shutil.copy(ROOT / name, copy)
    for name in ["coplace", *ROOMS]:
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", base / "dist"], copy)
    return base / "dist"


@pytest.fixture(scope="module")
def wheel(distributions: Path) -> Path:
    (path,) = distributions.glob("*.whl")
    return path


def test_the_wheel_holds_every_room_with_its_data(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        notes = {name.rpartition(".dist-info/")[2] for name in archive.namelist() if ".dist-info/" in name}
    assert expected() - names == set(), "missing"
    assert {name.partition("/")[0] for name in names} == {"coplace"}, "nothing else goes into site-packages"
    assert any(name.endswith("LICENSE") for name in notes)
    assert "entry_points.txt" in notes
    assert any(name.startswith("coplace/instances/examples/") for name in names)


def test_the_sdist_holds_every_room_with_its_data(distributions: Path) -> None:
    (path,) = distributions.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        members = {member.name.partition("/")[2]: member for member in archive.getmembers()}
    assert expected() - members.keys() == set(), "missing"
    assert all(members[name].isfile() for name in expected()), "a link would lead nowhere"


def test_the_installed_wheel_works(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-index", "--no-deps"]
    run([*pip, "--target", target, wheel], tmp_path)
    script = (
        "import sys, importlib.resources as r, coplace.instances as i;"
        "examples = r.files('coplace.instances') / 'examples';"
        "paths = sorted(p for p in examples.iterdir() if p.name.endswith('.yaml'));"
        "print(sum(len(i.read_instance(p).jobs) > 0 for p in paths));"
        "[print(m.__file__) for name, m in sys.modules.items() if name.partition('.')[0] == 'coplace']"
    )
    solvable, *modules = run([sys.executable, "-c", script], tmp_path, PYTHONPATH=str(target)).splitlines()
    assert all(Path(module).is_relative_to(target) for module in modules), "another coplace was imported"
    assert int(solvable) == len(list((ROOT / "instances" / "examples").glob("*.yaml"))) > 0
