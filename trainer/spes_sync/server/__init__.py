"""The sync server: gRPC, files and clocks around the pure state machine of `spes_sync.rounds`.

One event loop owns all state; files and numpy work in threads of a bounded pool.
"""
