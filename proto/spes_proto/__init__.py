"""The wire: protobuf sources and their generated stubs, one folder a version."""
