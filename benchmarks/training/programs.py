"""What the training benchmarks train: networks on data that packages ship."""

from __future__ import annotations

import importlib.util
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch

from coplace.training import Program


def digits(hidden: int = 256, layers: int = 1) -> Program:
    """A multilayer perceptron on the 1,797 handwritten digits of scikit-learn; 1,200 are trained on."""
    inputs, target = _digits()
    sizes = [64, *[hidden] * layers]
    parts: list[Any] = []
    for size, following in itertools.pairwise(sizes):
        parts += [torch.nn.Linear(size, following), torch.nn.ReLU()]
    model = torch.nn.Sequential(*parts, torch.nn.Linear(hidden, 10))
    return _program(model, inputs, target, 1200)


def convolutions(channels: int = 16) -> Program:
    """A convolutional network on the same digits, as images of 8 × 8."""
    inputs, target = _digits()
    model = torch.nn.Sequential(
        torch.nn.Unflatten(1, (1, 8, 8)),
        torch.nn.Conv2d(1, channels, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(channels, 2 * channels, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(2 * channels * 16, 10),
    )
    return _program(model, inputs, target, 1200)


def text(width: int = 128, context: int = 16, samples: int = 20_000) -> Program:
    """Predicts the next character of Python's own documentation, which Python ships as ``pydoc_data.topics``."""
    from pydoc_data.topics import topics

    letters = "".join(topics[name] for name in sorted(topics)).lower()
    alphabet = {letter: index for index, letter in enumerate(sorted(set(letters)))}
    codes = torch.tensor([alphabet[letter] for letter in letters])
    windows = codes.unfold(0, context + 1, 7)
    windows = windows[torch.randperm(len(windows), generator=torch.Generator().manual_seed(0))][: samples + 2000]
    model = torch.nn.Sequential(
        torch.nn.Embedding(len(alphabet), 24),
        torch.nn.Flatten(),
        torch.nn.Linear(24 * context, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, len(alphabet)),
    )
    return _program(model, windows[:, :-1], windows[:, -1], samples)


def images(side: int = 16, channels: int = 8, samples: int = 4000) -> Program:
    """Tells patches of the two photographs that scikit-learn ships from each other."""
    from sklearn.datasets import load_sample_images

    random = np.random.default_rng(0)
    patches, target = [], []
    for label, image in enumerate(load_sample_images().images):
        for _ in range((samples + 1000) // 2):
            row, column = (int(random.integers(size - side)) for size in image.shape[:2])
            patches.append(image[row : row + side, column : column + side])
            target.append(label)
    inputs = torch.tensor(np.stack(patches), dtype=torch.float32).permute(0, 3, 1, 2) / 255
    shuffled = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, channels, 3, stride=2),
        torch.nn.ReLU(),
        torch.nn.Conv2d(channels, 2 * channels, 3, stride=2),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.LazyLinear(2),
    )
    model(inputs[:2])
    return _program(model, inputs[shuffled], torch.tensor(target)[shuffled], samples)


def wide(millions: float = 5.0, samples: int = 16_384) -> Program:
    """A perceptron of so many million parameters on noise: what is measured is its speed alone."""
    layers = max(1, round(millions))
    # (layers - 1)·h² + 522·h = parameters, biases left out
    square = max(layers - 1, 1e-9)
    hidden = round((math.sqrt(522**2 + 4e6 * square * millions) - 522) / (2 * square))
    parts: list[Any] = [torch.nn.Linear(512, hidden), torch.nn.ReLU()]
    for _ in range(layers - 1):
        parts += [torch.nn.Linear(hidden, hidden), torch.nn.ReLU()]
    model = torch.nn.Sequential(*parts, torch.nn.Linear(hidden, 10))
    random = torch.Generator().manual_seed(0)
    inputs, target = torch.randn(samples, 512, generator=random), torch.randint(10, (samples,), generator=random)
    return Program(model, (inputs, target), torch.nn.functional.cross_entropy)


def _digits() -> tuple[Any, Any]:
    """What ``sklearn.datasets.load_digits`` gives, without importing scikit-learn in every process."""
    spec = importlib.util.find_spec("sklearn")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("the digits come with scikit-learn, which is not installed")
    file = Path(spec.submodule_search_locations[0], "datasets", "data", "digits.csv.gz")
    table = torch.tensor(np.loadtxt(file, delimiter=",", dtype=np.float32))
    table = table[torch.randperm(len(table), generator=torch.Generator().manual_seed(0))]
    return table[:, :-1] / 16, table[:, -1].long()


def _program(model: Any, inputs: Any, target: Any, train: int) -> Program:
    return Program(
        model,
        (inputs[:train], target[:train]),
        torch.nn.functional.cross_entropy,
        (inputs[train:], target[train:]),
    )
