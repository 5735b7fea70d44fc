"""`spes.v1`: Sync (peers to sync server) and Control (hub to sync server)."""
