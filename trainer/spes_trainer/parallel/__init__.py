"""Several processes as one peer: every tensor sharded by rows with FSDP2."""
