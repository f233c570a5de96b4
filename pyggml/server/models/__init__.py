"""The models of a server: which are offered, loaded and unloaded, and how much memory they may take."""
