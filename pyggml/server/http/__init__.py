"""HTTP: connections, request bodies, headers, errors, streaming and access control."""
