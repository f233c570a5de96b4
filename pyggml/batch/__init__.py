"""Batch inference over a file of prompts: every row once, in order, and resumable after a crash.

:func:`run` appends each answer to a journal (OUT.part) as soon as it is computed. After a crash, the same call resumes
the job and computes only the rows that the journal lacks; the output file appears when it is complete. :func:`embed`
does the same for vectors, and :func:`similar` searches them. The other names are the building blocks of distributed
jobs (:mod:`pyggml.ray`).
"""

from __future__ import annotations

from pyggml.batch.embedding import EmbedProgress, EmbedReport, embed
from pyggml.batch.job import N_PARALLEL, BatchProgress, BatchReport, Job, job_id, require_load_options, run
from pyggml.batch.output import answer_schema, fit_to_column
from pyggml.batch.row_processor import (
    FieldNames,
    Params,
    PromptRowProcessor,
    answer_fields,
    checked_params,
    open_row_processor,
    process_rows,
    usage,
)
from pyggml.batch.rows import InvalidRow, Rows
from pyggml.batch.similar import Match, similar

__all__ = [
    "N_PARALLEL",
    "BatchProgress",
    "BatchReport",
    "EmbedProgress",
    "EmbedReport",
    "FieldNames",
    "InvalidRow",
    "Job",
    "Match",
    "Params",
    "PromptRowProcessor",
    "Rows",
    "answer_fields",
    "answer_schema",
    "checked_params",
    "embed",
    "fit_to_column",
    "job_id",
    "open_row_processor",
    "process_rows",
    "require_load_options",
    "run",
    "similar",
    "usage",
]

# Names of earlier versions.
Broken = InvalidRow
Names = FieldNames
PlainAnswering = PromptRowProcessor
answer_all = process_rows
fitting = fit_to_column
identity = job_id
open_answering = open_row_processor
