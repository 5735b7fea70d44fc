"""The sync plane: versions of the model, rounds, pushes and pulls; numpy only, no torch, no Kubernetes."""
