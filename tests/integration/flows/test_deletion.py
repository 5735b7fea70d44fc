"""A job is deleted: it goes at once, its peers hand in their work, and nothing of it stays."""

import pytest
from builders.federation import now
from builders.live_objects import until

pytestmark = pytest.mark.timeout(900)


def test_a_deleted_job_leaves_nothing_though_a_member_is_away(federation):
    """A job of its own, so that other acts keep theirs."""
    federation.agents["uni-b"].kill()
    volume = federation.volume()
    since = now()
    federation.objects.delete("SpesJob", federation.namespace, "tiny")
    federation.objects.wait_gone("SpesJob", federation.namespace, "tiny", seconds=10)
    until(lambda: federation.local_jobs("uni-a") == [], seconds=240)
    federation.objects.wait_gone("StatefulSet", federation.namespace, "tiny-sync", seconds=240)
    federation.objects.wait_gone("Pod", federation.namespace, "tiny-sync-0", seconds=240)
    until(lambda: federation.assignments("uni-a") == [], seconds=240)
    until(lambda: federation.assignments("uni-b") == [], seconds=240)
    assert federation.local_jobs("uni-b") != []
    federation.agents["uni-b"].start()
    until(lambda: federation.local_jobs("uni-b") == [], seconds=240)
    left = {
        obj["metadata"]["name"]
        for kind in ("StatefulSet", "Service", "Secret", "ConfigMap", "PersistentVolumeClaim")
        for obj in federation.objects.list(kind, federation.namespace)
    }
    assert left == {volume, "kube-root-ca.crt"}
    federation.wait_event("JobDeleted", since)
