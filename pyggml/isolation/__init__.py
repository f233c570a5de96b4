"""An LLM whose model and engine are in a process of their own: ``load(..., isolate=True)``.

An assertion on one of the engine's compute threads, a fault in a driver or the system's killer of large processes then
ends that process, and not the program: the requests in flight get an EngineError, and the next call starts another.

- :mod:`~pyggml.isolation.isolated`: the process, started again when needed;
- :mod:`~pyggml.isolation.process`: one of them;
- :mod:`~pyggml.isolation.engine`, :mod:`~pyggml.isolation.passes`, :mod:`~pyggml.isolation.model`: what takes the
  places of an Engine, of the Passes of an Embedder and of a Model;
- :mod:`~pyggml.isolation.messages`: what the two sides tell each other;
- :mod:`~pyggml.isolation.worker`: the other side.

What runs for each token is native (``csrc/isolation/``).
"""

from pyggml.isolation.isolated import Isolated

__all__ = ["Isolated"]
