"""What character comes next: a small recurrent network on the documentation that comes with Python."""

import pydoc_data.topics

import torch

from coplace.training import Program

ALPHABET = "\n abcdefghijklmnopqrstuvwxyz0123456789.,;:!?'\"()[]{}<>=+-*/_%#@"
WINDOW = 32
"""Characters that are read before the next one is foretold."""


def forward(model: torch.nn.ModuleDict, characters: torch.Tensor) -> torch.Tensor:
    """*characters*: numbers in the alphabet, (samples, WINDOW); the logits of the next, (samples, len(ALPHABET))."""
    read, _ = model["recurrent"](model["embedding"](characters))
    return model["next"](read[:, -1])


def program(characters: int = 60_000, width: int = 64) -> Program:
    """What is trained, on the first *characters* of the text; every tenth part of it is for validation."""
    text = "\n".join(pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics)).lower()
    numbers = {character: number for number, character in enumerate(ALPHABET)}
    read = torch.tensor([numbers[character] for character in text[:characters] if character in numbers])
    windows = read.unfold(0, WINDOW + 1, 3)
    block = torch.arange(len(windows)) // 100 % 10
    training, validation = windows[block < 9], windows[block == 9]
    model = torch.nn.ModuleDict(
        {
            "embedding": torch.nn.Embedding(len(ALPHABET), 16),
            "recurrent": torch.nn.GRU(16, width, batch_first=True),
            "next": torch.nn.Linear(width, len(ALPHABET)),
        }
    )
    return Program(
        model,
        data=(training[:, :-1], training[:, -1]),
        loss=torch.nn.functional.cross_entropy,
        validation=(validation[:, :-1], validation[:, -1]),
        forward=forward,
    )
