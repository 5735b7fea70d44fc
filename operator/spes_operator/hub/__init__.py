"""The hub: reconciles SpesJobs over members and sync servers.

Pure decisions in `reconcile` and the policies it calls; I/O in `controller`, `observe`, `write`.
"""
