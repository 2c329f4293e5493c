"""Kubernetes quantities: every notation, rounding in the careful direction, and back."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from coplace.instances import Node, Profile
from coplace.instances.quantities import (
    FILE_CONTEXT,
    format_cpu,
    format_memory,
    parse_cpu,
    parse_memory,
    parse_quantity,
)

SUFFIXES = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": 1, "k": 10**3, "M": 10**6,
    "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40,
    "Pi": 2**50, "Ei": 2**60,
}  # fmt: skip


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("number", ["0", "1", "1.5", "+2", ".25", "3.", "129043388", "-7"])
def test_every_suffix(number, suffix):
    assert parse_quantity(number + suffix) == Fraction(number) * SUFFIXES[suffix]


@pytest.mark.parametrize(
    ("text", "value"), [("1e3", 1000), ("1E3", 1000), ("1.5e-3", Fraction(3, 2000)), ("12e+2", 1200), (" 5 ", 5)]
)
def test_exponents(text, value):
    assert parse_quantity(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        ".",
        "e3",
        "1e",
        "1e1000",
        "1K",
        "1ki",
        "1mi",
        "1 Gi",
        "1GB",
        "Gi",
        "1e3Mi",
        "1_000",
        "0x10",
        "١",
        "nan",
        "inf",
    ],
)
def test_what_is_no_quantity(text):
    with pytest.raises(ValueError, match="is not a Kubernetes quantity such as 500m, 4 or 16Gi"):
        parse_quantity(text)


def test_a_long_text_is_shortened_in_the_message():
    with pytest.raises(ValueError, match="…") as caught:
        parse_quantity("x" * 10_000)
    assert len(str(caught.value)) < 150


@pytest.mark.parametrize(
    ("text", "up", "down"),
    [
        ("3920m", 3920, 3920),
        ("0.0001", 1, 0),
        ("1u", 1, 0),
        ("1500500u", 1501, 1500),
        ("4", 4000, 4000),
        ("1k", 10**6, 10**6),
    ],
)
def test_cpu_demand_is_rounded_up_and_capacity_down(text, up, down):
    assert (parse_cpu(text), parse_cpu(text, up=False)) == (up, down)


@pytest.mark.parametrize(
    ("text", "up", "down"),
    [
        ("1Gi", 1024, 1024),
        ("129043388Ki", 126019, 126018),
        ("1G", 954, 953),
        ("1572864", 2, 1),
        ("0", 0, 0),
        ("1Pi", 2**30, 2**30),
    ],
)
def test_memory_demand_is_rounded_up_and_capacity_down(text, up, down):
    assert (parse_memory(text), parse_memory(text, up=False)) == (up, down)


@pytest.mark.parametrize(
    ("parse", "text", "rule"),
    [
        (parse_cpu, "10001", "more than 10000 cores"),
        (parse_cpu, "1e900", "more than 10000 cores"),
        (parse_cpu, "-1m", "must not be negative"),
        (parse_memory, "128", "less than 1 MiB: memory without a suffix is in bytes"),
        (parse_memory, "500m", "less than 1 MiB"),
        (parse_memory, "1Ei", "more than 1 PiB"),
        (parse_memory, "-1Gi", "must not be negative"),
    ],
)
def test_slips_of_the_unit_are_refused(parse, text, rule):
    with pytest.raises(ValueError, match=rule):
        parse(text)


@given(st.integers(0, 10**7))
def test_cpu_reads_back_as_written(milli):
    assert parse_cpu(format_cpu(milli)) == parse_cpu(format_cpu(milli), up=False) == milli


@given(st.integers(0, 2**30))
def test_memory_reads_back_as_written(mebibytes):
    assert parse_memory(format_memory(mebibytes)) == parse_memory(format_memory(mebibytes), up=False) == mebibytes


@given(st.fractions(0, 10**4), st.sampled_from(["", "m", "u", "n"]))
def test_rounding_differs_by_one_unit_at_most_and_brackets_the_value(value, suffix):
    text = f"{float(value):.9f}{suffix}"
    exact = parse_quantity(text) * 1000
    assert parse_cpu(text, up=False) <= exact <= parse_cpu(text)
    assert parse_cpu(text) - parse_cpu(text, up=False) == (exact.denominator > 1)
    assert parse_cpu(text) == math.ceil(exact)


def test_a_bare_number_is_the_stored_unit_in_python_and_a_quantity_in_a_file():
    assert Profile(cpu=4000, memory=16384).memory == 16384
    assert Profile.model_validate({"cpu": 4, "memory": 2**30}, context=FILE_CONTEXT) == Profile(cpu=4000, memory=1024)
    assert Profile(cpu="4", memory="1Gi") == Profile(cpu=4000, memory=1024)
    assert Profile.model_validate({"cpu": 0.0005, "memory": 1e9}, context=FILE_CONTEXT) == Profile(cpu=1, memory=954)
    assert Node.model_validate({"name": "n", "cpu": 1.0005, "memory": 1e9}, context=FILE_CONTEXT).memory == 953


HUGE = pytest.param(10**5000, id="huge")


@pytest.mark.parametrize("value", [0.5, -1, True, None, [], math.nan, math.inf, 10**7 + 1, HUGE])
def test_wrong_python_values_are_refused(value):
    with pytest.raises(ValidationError):
        Profile(cpu=value)


@pytest.mark.parametrize("value", [-0.5, math.nan, math.inf, True, None, [], 1e31, HUGE])
def test_wrong_values_in_a_file_are_refused(value):
    with pytest.raises(ValidationError, match=r"quantity|finite|negative|large"):
        Profile.model_validate({"cpu": value}, context=FILE_CONTEXT)
