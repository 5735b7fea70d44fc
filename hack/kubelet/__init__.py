"""A stand-in for a kubelet and a scheduler: pods of a real API server run as local processes.

For tests. Nothing here knows what the pods are for. Layers, from the outside in: `program` (what is
started), `kubelet` (which pod is whose), `worker` (one pod's life), `container` (its process), and
pure parts that translate a pod's spec into a process and a process's end into a pod's status.
"""
