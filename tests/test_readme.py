"""What README.md and docs/ show is true.

All ```python blocks of a file are run in order, in one namespace; those of a few pages by test_docs.py. In ```console
blocks every command ``$ coplace …`` and ``$ make demo`` is run, and what the block shows below it is compared with what
it prints: the same lines, up to numbers, spacing, rules and bars. A line that is only ``…`` stands for any lines. Both
run in a folder that has ``instances/examples/`` as the checkout has it, and nothing else.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCS = [
    path
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if path.name != "how-to-add-a-constraint.md"  # code for several files, run by test_how_to.py
]
SHOWN_AS_TEXT = ["file-format.md", "tutorial.md"]
"""Pages whose Python blocks test_docs.py runs, in order too, and compares what they print with the page."""
DEMO = "coplace solve --method prices --replay instances/examples/openb-64.yaml"
RUN_CLI = "import sys; from coplace.cli.main import main; sys.exit(main())"


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text and the line of the file where that starts."""

    language: str
    text: str
    line: int


@dataclass(frozen=True)
class Command:
    """A shell command and the output shown below it."""

    command: str
    output: str


def blocks(text: str) -> list[Block]:
    found: list[Block] = []
    language, start, body = None, 0, []
    for number, line in enumerate(text.splitlines(), start=1):
        if language is None and line.startswith("```"):
            language, start, body = line[3:].strip(), number + 1, []
        elif language is not None and line.rstrip() == "```":
            found.append(Block(language, "".join(f"{line}\n" for line in body), start))
            language = None
        else:
            body.append(line)
    assert language is None, f"the block that starts at line {start} does not end"
    return found


def commands(block: Block) -> Iterator[Command]:
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        command = DEMO if command.strip() == "make demo" else command.strip()
        if command.startswith("coplace "):
            yield Command(command, output)


def skeleton(text: str) -> list[str]:
    """The lines without colours, numbers, spacing, rules and bars."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    text = re.sub(r"[-+]?\d+(?:[.,:]\d+)*(?:e[-+]?\d+)?", "#", text)
    text = re.sub(r"[\u2500-\u259f]|--+", " ", text)
    return [line for line in (" ".join(line.split()) for line in text.splitlines()) if line]


def shows(shown: str, printed: str) -> bool:
    """Whether *shown* is what was *printed*, up to what :func:`skeleton` drops and what ``…`` stands for."""
    lines = ("(?:.*\n)*?" if line == "…" else re.escape(line) + "\n" for line in skeleton(shown))
    return re.fullmatch("".join(lines), "".join(f"{line}\n" for line in skeleton(printed))) is not None


def without_jobs(shown: str) -> str:
    """*shown* with ``…`` for the lines about jobs: linear algebra differs in the last digit from machine to machine.

    With it differs which of two equally good ways a search goes.
    """
    about_jobs = re.compile(r"\S+-\d{5} |\d+ jobs run| {4}")
    return "".join("…\n" if about_jobs.match(line) else line for line in shown.splitlines(keepends=True))


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(ROOT / "instances" / "examples", tmp_path / "instances" / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "path",
    [path for path in DOCS if path.name not in SHOWN_AS_TEXT],
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_the_python_blocks_run(path: Path, workplace: Path) -> None:
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(path.read_text(encoding="utf-8")):
        if block.language == "python":
            source = "\n" * (block.line - 1) + block.text  # so that an error names the line in the file
            exec(compile(source, path, "exec"), namespace)


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_commands_print_what_is_shown(path: Path, workplace: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "FORCE_COLOR")}
    for block in blocks(path.read_text(encoding="utf-8")):
        for shown in commands(block) if block.language == "console" else ():
            done = subprocess.run(
                [sys.executable, "-c", RUN_CLI, *shlex.split(shown.command)[1:]],
                env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
            output = without_jobs(shown.output) if shown.command == DEMO else shown.output
            assert shows(output, done.stdout), (
                f"{path.name}:{block.line}: `{shown.command}` now prints\n{done.stdout}\nand not\n{shown.output}"
            )


def test_the_readme_shows_the_demo() -> None:
    readme = blocks((ROOT / "README.md").read_text(encoding="utf-8"))
    shown = [command for block in readme if block.language == "console" for command in commands(block)]
    demos = [command for command in shown if command.command == DEMO]
    assert demos, "README.md shows no `$ make demo` in a ```console block"
    assert all(skeleton(demo.output) for demo in demos), "README.md does not show what the demo prints"


def test_blocks_and_commands_are_found() -> None:
    text = "# T\n```python\nx = 1\n```\n\n```console\n$ make demo\ngain 3.5\n$ coplace --help\n$ ls\n```\n"
    python, console = blocks(text)
    assert python == Block("python", "x = 1\n", 3)
    assert list(commands(console)) == [Command(DEMO, "gain 3.5\n"), Command("coplace --help", "")]


def test_an_unended_block_is_no_block() -> None:
    with pytest.raises(AssertionError, match="line 2 does not end"):
        blocks("```python\nx = 1\n")


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("job-1  3 GPUs\n", "job-12 14 GPUs\n", True),
        ("┃ a ┃ b ┃\n┡━━╇━━┩\n", "| a | b\n".replace("|", "┃"), True),
        ("first\n…\nlast\n", "first\nsecond\nthird\nlast\n", True),
        ("gap 0.1 %\n", "gap 12.5 %\n\n", True),
        ("V100  ███░ 75 %\n", "V100  █░░░ 25 %\n", True),
        ("gap 0.1 %\n", "bound 0.1 %\n", False),
        ("first\n", "first\nsecond\n", False),
        ("first\nsecond\n", "first\n", False),
    ],
)
def test_the_comparison_sees_structure_only(shown: str, printed: str, same: bool) -> None:
    assert shows(shown, printed) is same
