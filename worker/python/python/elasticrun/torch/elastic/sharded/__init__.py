"""Parts of a state that is larger than a worker. Internal: docs/design/sharded-state.md."""
