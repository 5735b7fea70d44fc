"""Errors of the stand-in kubelet.

KubeletError             base
├── OrderError           an order names what is not there
├── MissingInputError    something the pod mounts or reads does not exist yet: wait
└── UnsupportedPodError  the pod uses what processes on one machine cannot give
"""

from __future__ import annotations


class KubeletError(Exception):
    """Base of every error raised on purpose."""


class OrderError(KubeletError):
    """An order names what is not there."""


class MissingInputError(KubeletError):
    """A Secret, ConfigMap or claim does not exist yet; holds the reason that a pod shows."""

    def __init__(self, reason: str, message: str) -> None:
        """`reason`: of the waiting container, as Kubernetes calls it."""
        super().__init__(message)
        self.reason = reason


class UnsupportedPodError(KubeletError):
    """The pod uses what processes on one machine cannot give."""
