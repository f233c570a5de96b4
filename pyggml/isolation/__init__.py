"""An LLM whose model and engine run in a separate process: ``load(..., isolate=True)``.

A failed assertion on a compute thread, a driver fault or the out-of-memory killer then crashes that process and not the
program: the requests in flight get an EngineError, and the next call starts another process.

- :mod:`~pyggml.isolation.supervisor`: starts the process, and restarts it after a crash;
- :mod:`~pyggml.isolation.process`: one such process;
- :mod:`~pyggml.isolation.isolated_engine`, :mod:`~pyggml.isolation.isolated_embedding` and
  :mod:`~pyggml.isolation.isolated_model`: proxies of an Engine, the contexts of an Embedder and a Model;
- :mod:`~pyggml.isolation.protocol`: requests and replies;
- :mod:`~pyggml.isolation.worker`: the program of the process.

The work for each token is native (``csrc/isolation/``).
"""

from pyggml.isolation.supervisor import Isolated

__all__ = ["Isolated"]
