"""Settings of all tests."""

from __future__ import annotations

import os

from hypothesis import settings

# A change is judged by the same examples every time; at a desk every run looks at new ones.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("desk", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "desk")
