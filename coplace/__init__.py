"""coplace: task counts and placement of deep-learning training jobs, decided together by optimisation."""

__version__ = "0.1.0"
