"""Finds the measured public data that some tests read."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.fit_catalogue import default_data


def data_dir() -> Path:
    """The folder ``COPLACE_DATA``, by default ``../shared/data`` beside the checkout; skips the test without it."""
    data = default_data()
    if not data.is_dir():
        pytest.skip(f"set COPLACE_DATA: {data} not found")
    return data
