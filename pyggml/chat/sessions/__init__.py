"""Sessions, and prefixes that are computed in advance or saved in files."""
