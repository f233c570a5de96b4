"""The server's settings: their options, and reading them from the command line, the environment and a file."""
