"""Handwritten digits, 8 × 8 pixels: a small network on the data set that comes with scikit-learn."""

import torch

from coplace.training import Program

VALIDATION = 360
"""Samples that are kept for validation, of 1797."""


def program(hidden: int = 64) -> Program:
    """What is trained; ``arguments`` of the job file set *hidden*, the width of the network."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise ImportError("this example needs scikit-learn; pip install scikit-learn") from None
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    x = torch.tensor(images, dtype=torch.float32)[order] / 16
    y = torch.tensor(labels)[order]
    model = torch.nn.Sequential(torch.nn.Linear(64, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 10))
    return Program(
        model,
        data=(x[VALIDATION:], y[VALIDATION:]),
        loss=torch.nn.functional.cross_entropy,
        validation=(x[:VALIDATION], y[:VALIDATION]),
    )
