"""Files on disk: atomic and resumable writing, bounded reading of JSON, and the names of a model's files."""
