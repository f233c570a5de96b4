"""The parts of ``tools/train_demo_model.py``, which makes the model that ships with pyggml."""
