"""The member: runs in an institution's cluster what the hub assigns, within its own limits.

Pure decisions in `reconcile` and `manifests`; I/O in `controller`.
"""
