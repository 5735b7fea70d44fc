"""The edge to Kubernetes: the API as a Protocol, its in-memory form, and SPES's workloads.

Called by the hub's and the members' controllers. Objects are JSON here and nowhere else.
"""
