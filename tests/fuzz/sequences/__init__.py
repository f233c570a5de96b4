"""Sequences of calls by several threads and event loops of one process, each judged by what was done before.

:mod:`~fuzz.sequences.world` knows what may happen: which object may be closed by now, what greedy generation answers.
The steps are in :mod:`~fuzz.sequences.generating` (an LLM in threads), :mod:`~fuzz.sequences.tasks` (in event loops),
:mod:`~fuzz.sequences.parts` (what is under an LLM) and :mod:`~fuzz.sequences.processes` (forks, signals, the ways in which
a process ends). :mod:`~fuzz.sequences.players` are the threads that do them, and :mod:`~fuzz.sequences.server` runs each
case in a process forked from one that has imported pyggml, so that the end of the interpreter belongs to the case.
"""
