"""Files on disk: those that appear whole, those that go on where they stopped, and JSON within limits."""
