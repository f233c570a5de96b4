"""A Hugging Face directory becomes a GGUF file."""
