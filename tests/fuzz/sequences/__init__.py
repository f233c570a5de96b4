"""Sequences of calls by several threads and event loops of one process, each judged by what was done before.

- world: what may happen: which object may be closed by now, what greedy generation answers
- generating, tasks, parts, processes: the steps: an LLM in threads, in event loops, what is under an LLM; forks and
  signals, garbage, and the ways in which a process ends
- players, case: the threads and loops that do them, and what must be so at the end
- server: runs each case in a process forked from one that has imported pyggml, so that the end of the interpreter
  belongs to the case
"""
