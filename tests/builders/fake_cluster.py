"""A member's own cluster without processes: Jobs and Secrets as plain records."""

import asyncio
from dataclasses import replace

from spes_operator.errors import AlreadyExistsError
from spes_operator.k8s.workloads import JobStatus


class FakeCluster:
    def __init__(self):
        self.records = {}
        self.secret_data = {}
        self.annotations = {}
        self.created = []
        self.stopped = []
        self.foreign = set()
        self.refuse_with = None
        self._changed = asyncio.Event()

    async def jobs(self):
        return tuple(self.records.values())

    async def create(self, job):
        if self.refuse_with is not None:
            raise self.refuse_with
        if job.name in self.records or job.name in self.foreign:
            raise AlreadyExistsError(job.name)
        assert not any(other.slot == job.slot for other in self.records.values())
        self.created.append(job.name)
        self.records[job.name] = replace(job, status=JobStatus(active=True))

    async def stop(self, stop):
        self.stopped.append(stop)
        self.records.pop(stop.name, None)

    async def changes(self):
        while True:
            await self._changed.wait()
            self._changed.clear()
            yield

    async def secrets(self):
        return dict(self.annotations)

    async def put_secret(self, name, data, annotations):
        self.secret_data[name] = dict(data)
        self.annotations[name] = dict(annotations)

    async def delete_secret(self, name):
        self.secret_data.pop(name, None)
        self.annotations.pop(name, None)

    def set_status(self, name, **changes):
        job = self.records[name]
        self.records[name] = replace(job, status=replace(job.status, **changes))
        self._changed.set()
