"""The sync plane: versions of a model, rounds, pushes, pulls. No torch, no Kubernetes."""
