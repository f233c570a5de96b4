"""An LLM whose model and engine are in a process of their own: ``load(..., isolate=True)``.

An assertion on one of the engine's compute threads, a fault in a driver or the system's killer of large processes then
ends that process, and not the program: the requests in flight get an EngineError, and the next call starts another.

- :mod:`~pyggml.isolation.supervisor`: the process, started again when needed;
- :mod:`~pyggml.isolation.process`: one of them;
- :mod:`~pyggml.isolation.isolated_engine`, :mod:`~pyggml.isolation.isolated_embedding` and
  :mod:`~pyggml.isolation.isolated_model`: the stand-ins for an Engine, for the contexts of an Embedder and for a Model;
- :mod:`~pyggml.isolation.messages`: what the two sides tell each other;
- :mod:`~pyggml.isolation.worker`: the other side.

What runs for each token is native (``csrc/isolation/``).
"""

from pyggml.isolation.supervisor import Isolated

__all__ = ["Isolated"]
