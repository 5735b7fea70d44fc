"""A whole SPES on one machine: the hub's and the members' real code, with local processes for pods.

Called by `spes run`. Plays what Kubernetes would: the kubelet and the Job controller over real
processes, and the world that takes nodes away. Decides nothing about training.
"""
