"""The server's APIs, each in a module or folder: endpoints, request bodies and responses."""
