"""How parameters are updated and sent, as a job's file says it; free of torch, so that a coordinator can read it."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, TypeAdapter, model_validator
from pydantic_core import PydanticCustomError

from coplace.instances.base import Flag, Number, Record

LearningRate = Annotated[Number, Field(ge=1e-12, le=1000)]
"""Length of a step; above zero."""

WeightDecay = Annotated[Number, Field(ge=0, le=1000)]
"""Strength λ of the pull of parameters towards zero."""

Momentum = Annotated[Number, Field(ge=0, lt=1)]
"""Share of a running mean that one step keeps."""

Epsilon = Annotated[Number, Field(ge=1e-30, le=1)]
"""What keeps a denominator above zero."""


class Sgd(Record):
    """Stochastic gradient descent, with momentum if asked for, as ``torch.optim.SGD``.

    Attributes:
        lr: learning rate.
        momentum: share of the last direction that is kept.
        nesterov: look ahead by one step of momentum.
        weight_decay: λ, added to the gradient as λ·parameter.
    """

    name: Literal["sgd"] = "sgd"
    lr: LearningRate
    momentum: Momentum = 0.0
    nesterov: Flag = False
    weight_decay: WeightDecay = 0.0

    @model_validator(mode="after")
    def _nesterov_needs_momentum(self) -> Sgd:
        if self.nesterov and self.momentum == 0:
            raise PydanticCustomError("nesterov", "nesterov needs a momentum above 0")
        return self


class Adam(Record):
    """Adam (Kingma and Ba, ICLR 2015), as ``torch.optim.Adam``.

    Attributes:
        lr: learning rate.
        betas: shares that the running means of the gradient and of its square keep.
        eps: added to the denominator.
        weight_decay: λ, added to the gradient as λ·parameter.
    """

    name: Literal["adam"] = "adam"
    lr: LearningRate
    betas: tuple[Momentum, Momentum] = (0.9, 0.999)
    eps: Epsilon = 1e-8
    weight_decay: WeightDecay = 0.0


class AdamW(Record):
    """Adam with decoupled weight decay (Loshchilov and Hutter, ICLR 2019), as ``torch.optim.AdamW``.

    Attributes:
        lr: learning rate.
        betas: shares that the running means of the gradient and of its square keep.
        eps: added to the denominator.
        weight_decay: λ; each step takes lr·λ of a parameter from it.
    """

    name: Literal["adamw"] = "adamw"
    lr: LearningRate
    betas: tuple[Momentum, Momentum] = (0.9, 0.999)
    eps: Epsilon = 1e-8
    weight_decay: WeightDecay = 0.01


OptimizerSettings: TypeAlias = Annotated[Sgd | Adam | AdamW, Field(discriminator="name")]
"""Any optimiser; a field of this type reads the mapping with that ``name``."""

_ANY: TypeAdapter[Sgd | Adam | AdamW] = TypeAdapter(OptimizerSettings)


def optimizer_settings(document: Any) -> Sgd | Adam | AdamW:
    """The record that ``model_dump(mode="json")`` of one gave; raises pydantic's ``ValidationError``."""
    return _ANY.validate_python(document)


def state_names(settings: Sgd | Adam | AdamW) -> tuple[str, ...]:
    """Names of what the optimiser remembers, one float for each parameter and name."""
    if isinstance(settings, Sgd):
        return ("momentum_buffer",) if settings.momentum else ()
    return ("exp_avg", "exp_avg_sq")
