"""Embeddings of texts, and scores of pairs of texts.

:mod:`~pyggml.generation.embedding.methods`, :mod:`~pyggml.generation.embedding.rerank_methods`: the methods of LLM;
:mod:`~pyggml.generation.embedding.embedder`: a call from its arguments to its result;
:mod:`~pyggml.generation.embedding.texts`, :mod:`~pyggml.generation.embedding.pairs`: texts and pairs to token ids;
:mod:`~pyggml.generation.embedding.job`, :mod:`~pyggml.generation.embedding.pass_queue`: texts of all callers in shared
passes, chosen by :mod:`~pyggml.generation.embedding.pass_packing`;
:mod:`~pyggml.generation.embedding.encoder`: the forward passes;
:mod:`~pyggml.generation.embedding.vectors`: vectors as the caller wants them, and their similarity;
:mod:`~pyggml.generation.embedding.iteration`: embeddings of streams of texts.

Token embeddings are pooled outside the engine's graph, so that one context serves all kinds of pooling and texts longer
than a batch; scores come from the model's own head.
"""
