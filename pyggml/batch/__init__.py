"""Answers a file of prompts: every row once, in order, whatever happens to the process meanwhile.

``run`` writes each answer to a journal beside the output as soon as it is there. A job that was killed is begun again
with the same call, and computes only what the journal lacks; the output appears under its name when it is whole. The
other names are what jobs on other machines are made of.
"""

from __future__ import annotations

from pyggml.batch.job import N_PARALLEL, BatchProgress, BatchReport, Job, identity, run
from pyggml.batch.output import answer_schema, fitting
from pyggml.batch.row_processor import Names, PlainAnswering, answer_all, answer_fields, open_answering, usage
from pyggml.batch.rows import Broken, Rows

__all__ = [
    "N_PARALLEL",
    "BatchProgress",
    "BatchReport",
    "Broken",
    "Job",
    "Names",
    "PlainAnswering",
    "Rows",
    "answer_all",
    "answer_fields",
    "answer_schema",
    "fitting",
    "identity",
    "open_answering",
    "run",
    "usage",
]
