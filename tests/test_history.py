"""The history file: one schema, read back as written, and refused with line and column."""

import csv
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coplace.instances import InputError, Observation, read_history, write_history
from coplace.instances.history import COLUMNS, HISTORY_VERSION

FULL = Observation(
    at_seconds=120.5, seconds=60, job="resnet, the second", model="resnet-50", architecture="ps", sync="ssp",
    gpu_type="V100", workers=4, servers=2, gpus_per_worker=1, worker_cpu=4000, ps_cpu=2000, worker_memory=8192,
    ps_memory=4096, batch=256, span=3, pressure=0.75, speed=812.25, worker_rss=7000.5, ps_rss=3000, model_mib=97.5,
    sync_wait_share=0.125, staleness=1.5, mib_sent=1e6, samples=97470, loss=-0.25, accuracy=0.5,
)  # fmt: skip
LEAST = Observation(at_seconds=0, gpu_type="none", workers=1, speed=0)


def rows(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def rewritten(path: Path, *cells: tuple[str, str]) -> Path:
    """A history of two rows, with *cells* of the second, on line 3, replaced."""
    write_history([LEAST, FULL], path)
    table = rows(path)
    for column, value in cells:
        table[2][COLUMNS.index(column)] = value
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(table)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        list(read_history(path))
    assert str(caught.value).startswith(f"{path}: ")
    return str(caught.value).removeprefix(f"{path}: ")


def test_it_reads_back_as_written(tmp_path):
    write_history([FULL, LEAST], tmp_path / "h.csv")
    assert list(read_history(tmp_path / "h.csv")) == [FULL, LEAST]


def test_the_file_names_its_schema_and_its_columns(tmp_path):
    write_history([LEAST], tmp_path / "h.csv")
    header, row = rows(tmp_path / "h.csv")
    assert header == list(COLUMNS) == ["schema", *Observation.model_fields]
    assert row[0] == HISTORY_VERSION
    assert row[COLUMNS.index("loss")] == ""


def test_an_empty_history(tmp_path):
    write_history([], tmp_path / "h.csv")
    assert list(read_history(tmp_path / "h.csv")) == []


def test_a_byte_order_mark_is_read(tmp_path):
    write_history([FULL], tmp_path / "h.csv")
    (tmp_path / "h.csv").write_bytes(b"\xef\xbb\xbf" + (tmp_path / "h.csv").read_bytes())
    assert list(read_history(tmp_path / "h.csv")) == [FULL]


NUMBERS = st.floats(0, 1e15)
NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Z", "C"]), min_size=1, max_size=8)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.builds(
            Observation, at_seconds=NUMBERS, gpu_type=NAMES, workers=st.integers(1), speed=NUMBERS,
            job=st.none() | NAMES, loss=st.none() | st.floats(allow_nan=False, allow_infinity=False),
            worker_cpu=st.none() | st.integers(0), sync=st.sampled_from([None, "bsp", "asp", "ssp"]),
            pressure=st.none() | NUMBERS,
        ),
        max_size=4,
    )
)  # fmt: skip
def test_every_history_reads_back_as_written(tmp_path, observations):
    write_history(observations, tmp_path / "h.csv")
    assert list(read_history(tmp_path / "h.csv")) == observations


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        ("workers", "two", "line 3.workers: must be a whole number; found 'two'"),
        ("workers", "0", "line 3.workers: must be at least 1; found '0'"),
        ("workers", "1.5", "line 3.workers: must be a whole number; found '1.5'"),
        ("workers", "", "line 3.workers: is missing"),
        ("speed", "nan", "line 3.speed: must be a finite number; found 'nan'"),
        ("speed", "-1", "line 3.speed: must be at least 0; found '-1'"),
        ("loss", "inf", "line 3.loss: must be a finite number; found 'inf'"),
        ("sync_wait_share", "1.5", "line 3.sync_wait_share: must be at most 1; found '1.5'"),
        ("sync", "bps", "line 3.sync: must be 'bsp', 'asp' or 'ssp'; found 'bps'"),
        ("gpu_type", "V\n100", "line 4.gpu_type: must be printable, on one line"),
        ("schema", "coplace.history/v2", "line 3.schema: must be coplace.history/v1; found 'coplace.history/v2'"),
    ],
)
def test_a_bad_cell_is_refused_with_line_and_column(tmp_path, column, value, says):
    assert refusal(rewritten(tmp_path / "h.csv", (column, value))).startswith(says)


def test_several_bad_cells_of_a_row_are_reported_at_once(tmp_path):
    message = refusal(rewritten(tmp_path / "h.csv", ("workers", "x"), ("speed", "y")))
    assert "line 3.workers" in message
    assert "line 3.speed" in message


def test_rows_before_a_bad_one_are_read(tmp_path):
    history = read_history(rewritten(tmp_path / "h.csv", ("speed", "fast")))
    assert next(history) == LEAST
    with pytest.raises(InputError, match=r"line 3\.speed"):
        next(history)


@pytest.mark.parametrize("change", [lambda row: row[:-1], lambda row: [*row, "1"]])
def test_a_row_of_another_length_is_refused(tmp_path, change):
    path = tmp_path / "h.csv"
    write_history([LEAST], path)
    header, row = rows(path)
    path.write_text("\n".join([",".join(header), ",".join(change(row))]) + "\n")
    assert re.fullmatch(rf"line 2: must have {len(COLUMNS)} cells; found \d+", refusal(path))


@pytest.mark.parametrize("header", ["", "a,b\n1,2\n", ",".join(COLUMNS[1:]) + "\n", ",".join(sorted(COLUMNS)) + "\n"])
def test_wrong_columns_are_refused(tmp_path, header):
    (tmp_path / "h.csv").write_text(header)
    assert refusal(tmp_path / "h.csv").startswith("line 1: a history file has the columns schema, at_seconds")


def test_what_is_no_table_is_refused(tmp_path):
    assert refusal(tmp_path / "none.csv") == "cannot be read: No such file or directory"
    assert refusal(tmp_path) == "cannot be read: Is a directory"
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00")
    assert refusal(tmp_path / "b.csv").startswith("cannot be read as CSV")
