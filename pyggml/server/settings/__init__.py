"""The server's settings: options, and where they are read from."""
