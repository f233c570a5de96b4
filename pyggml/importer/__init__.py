"""From a Hugging Face directory to a GGUF file, without PyTorch."""
