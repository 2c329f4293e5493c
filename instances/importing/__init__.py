"""Instances from what others write down: trace tables of the openb cluster, and what ``kubectl`` prints."""

from coplace.instances.importing.imported import Imported
from coplace.instances.importing.kubernetes import import_kubernetes
from coplace.instances.importing.openb import import_openb

__all__ = ["Imported", "import_kubernetes", "import_openb"]
