"""What the hub keeps in memory of what it reads over and over, so that a pass asks a server little.

ConfigMaps are not among it: an ownership is read from the server before every compare-and-swap.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from spes_operator.k8s.cached import Kept
from spes_operator.names import LABEL_JOB_UID, LABEL_MEMBER

# Less than two heartbeats of the usual interval beyond the last one: with a watch that is broken a
# member that beats is still not taken for silent.
_MAX_AGE = timedelta(seconds=20)
# Only the hub writes join Secrets; that somebody else removed one may be noticed late.
_SECRETS_MAX_AGE = timedelta(seconds=60)
_WATCHED = Kept(max_age=_MAX_AGE)

KEPT: Mapping[str, Kept] = {
    "SpesJob": _WATCHED,
    "MemberCluster": _WATCHED,
    "MemberReport": _WATCHED,
    "TrainerAssignment": _WATCHED,
    "Lease": Kept(max_age=_MAX_AGE, label=LABEL_MEMBER),
    "Secret": Kept(
        max_age=_SECRETS_MAX_AGE, label=LABEL_JOB_UID, by_namespace=True, contents=False
    ),
}
