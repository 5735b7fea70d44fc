"""What the hub's controller is given besides the API. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from spes_api.status import Images

from spes_operator.clock import Clock, SystemClock
from spes_operator.hub.sync_control import SyncControl
from spes_operator.hub.sync_host import SyncHost
from spes_operator.hub.view import ServerSeen


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSettings:
    """Who does for it what differs from place to place."""

    host: SyncHost
    """Runs the sync servers."""
    connect: Callable[[ServerSeen], SyncControl]
    """The way to speak to a server that is ready."""
    job_namespaces: tuple[str, ...] = ("",)
    """Where jobs are carried out; "": everywhere."""
    images: Images = field(default_factory=Images)
    """Of jobs that name none; fixed for each when it is first seen."""
    clock: Clock = field(default_factory=SystemClock)
