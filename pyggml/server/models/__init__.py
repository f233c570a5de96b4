"""The models of a server: catalogue, loading, eviction and memory budget."""
