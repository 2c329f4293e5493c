"""Training speed: the contract of speed models, and the forms that an instance can state."""

from coplace.formulations.speed.contract import Configurations, SpeedModel, Speeds
from coplace.formulations.speed.forms import StatedSpeeds

__all__ = ["Configurations", "SpeedModel", "Speeds", "StatedSpeeds"]
