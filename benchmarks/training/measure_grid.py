"""Measure the whole grid: ``python -m benchmarks.training.measure_grid FILE [SECONDS]``.

Runs every model with every count for SECONDS (default 8) and writes a history file (docs/file-format.md).
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.training.grid import MODELS, SERVERS, WORKERS, measure

if __name__ == "__main__":
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 8.0
    written = measure(Path(sys.argv[1]), seconds, MODELS, WORKERS, SERVERS)
    print(f"{written} observations in {sys.argv[1]}")
