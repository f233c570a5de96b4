"""Tests that a sanitizer has nothing to say about, or that say nothing under one: `make asan-tests` leaves them out.

A sanitizer's library is preloaded into every process that a test starts. It reserves terabytes of addresses, keeps
freed memory for a while, makes everything several times slower, and ends a program that calls `operator new` for more
than there is.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from pyggml import system

# Why, and which: beginnings of node ids.
LEFT_OUT: dict[str, tuple[str, ...]] = {
    "none of our native code: browsers, compilers, type checkers, other programs and how the package is built": (
        "tests/documentation/test_comparison.py",
        "tests/distribution/test_cuda_wheel.py",
        "tests/devices/test_gpu_modules.py",
        "tests/importer/test_new_family.py::test_type_checkers_know_it",
        "tests/jobs/test_ray_batch.py",
        "tests/documentation/test_recipe_jupyter.py",
        "tests/documentation/test_server_docs.py::test_command_lines_print_what_is_shown",  # curl hangs as it starts
        "tests/server/page/",
        "tests/api/test_typing.py",
        "tests/distribution/test_vendor_sync.py",
        "tests/distribution/test_wheel.py",
    ),
    "measures memory": (
        "tests/loading/test_memory_estimate.py::test_the_process_grows_as_much",
        "tests/reliability/test_exhausted_system.py::test_a_group_with_little_memory",
        "tests/gguf_files/test_hostile_files.py::test_vocabularies_that_are_announced_and_not_there",
        "tests/chat/test_hostile_templates.py::test_deep_lists_are_freed",
        "tests/chat/test_hostile_templates.py::test_long_conversations_have_room",
        "tests/chat/test_hostile_templates.py::test_random_templates_that_grow",
        "tests/chat/test_hostile_templates.py::test_templates_that_nest_without_end",
        "tests/chat/test_hostile_templates.py::test_templates_that_take_memory_without_end",
        "tests/chat/test_hostile_templates.py::test_texts_without_end",
        "tests/chat/test_hostile_templates.py::test_what_holds_itself_is_freed",
        "tests/gguf_files/test_uncomputable_files.py::test_a_refused_file_leaves_no_memory",
    ),
    "measures time": (
        "tests/chat/test_output_parsing.py::test_templates_without_end",
        "tests/chat/test_hostile_templates.py::test_an_endless_template_is_read_once",
        "tests/chat/test_hostile_templates.py::test_long_texts_are_looked_for_in_long_ones",
    ),
    "meets a null pointer in upstream's code, which is caught": (
        "tests/gguf_files/test_uncomputable_files.py::test_is_refused_when_it_is_loaded[phi3 without queries]",
    ),
    "has a library of its own preloaded, which takes the sanitizer's place": (
        "tests/reliability/test_exhausted_system.py::test_clocks_that_jump_do_not_move_deadlines",
        "tests/reliability/test_faults.py::test_faults",
    ),
    "limits the addresses of a process, of which a sanitizer takes terabytes": (
        "tests/cli/test_chat.py::test_another_model_where_there_is_no_room_for_two",
        "tests/cli/test_doctor.py::TestMemoryAndCache::test_ulimit_here",
        "tests/devices/test_engine_on_device.py::TestOutOfMemory::test_while_it_runs",
        "tests/loading/test_memory_estimate.py::test_where_memory_is_short",
        "tests/loading/test_memory_estimate.py::test_where_there_is_no_memory",
        "tests/native/test_machine_limits.py::test_memory_under_ulimit",
        "tests/server/test_memory_budget.py::test_a_request_that_does_not_fit_the_memory_is_refused",
    ),
}

# The same, for the thread sanitizer alone.
LEFT_OUT_OF_THREADS: dict[str, tuple[str, ...]] = {
    "starts threads in a fork of a process that had some, where the sanitizer gives up": (
        "tests/api/test_bad_input.py::TestFork::test_a_child_makes_its_own",
        "tests/api/test_cached_property.py::test_a_forked_child_waits_for_no_thread",
        "tests/api/test_llm_errors.py::test_fork_in_between",
        "tests/documentation/test_recipe_wsgi.py::test_a_model_from_before_the_fork_says_so",
    ),
    "maps zeros while a thread waits for its page, which looks like a race": (
        "tests/reliability/test_faults.py::test_a_model_whose_file_is_cut_short",
    ),
    "calls itself more often than the sanitizer can write down": (
        "tests/chat/test_output_parsing.py::test_an_answer_may_go_on_from_deeply_nested_arguments",
        "tests/chat/test_output_parsing.py::test_deeply_nested_arguments_do_no_harm",
        "tests/chat/test_hostile_templates.py::test_what_is_written_too_deep",
        "tests/api/test_llm_errors.py::test_huge_templates_do_not_end_the_process",
        "tests/native/test_sampler_chain.py::TestGrammar::test_a_long_name_of_a_token",
        "tests/native/test_vocab.py::test_no_text_of_any_length_is_too_much",
    ),
    "divides by zero, and leaves the signal's handler by an exception, where the sanitizer sees no end of it": (
        "tests/gguf_files/test_uncomputable_files.py::test_handlers_of_others_are_left_as_they_were[before]",
        "tests/gguf_files/test_uncomputable_files.py::test_is_refused_when_it_is_loaded[olmo2 without heads]",
        "tests/gguf_files/test_uncomputable_files.py::test_is_refused_when_it_is_loaded[phimoe without heads]",
    ),
    "none of our native code: the hub's own client, which hangs with this sanitizer": (
        "tests/loading/test_hub.py::test_a_download_over_xet_can_be_stopped",
        "tests/loading/test_hub.py::test_xet_is_used_where_the_hub_has_it",
    ),
    "measures time": (
        "tests/chat/test_hostile_templates.py::test_what_would_end_the_process_or_never_end[{% set x = ['a' * 1000]|join",  # noqa: E501
        "tests/server/test_memory_budget.py::test_who_finds_no_room_in_time_is_told_what_is_in_use",
    ),
    "runs a tenth of the time on purpose, and takes twenty minutes with this sanitizer": (
        "tests/remote/test_remote.py::test_a_host_that_computes_long_is_not_silent",
    ),
    "had not ended after eight or ten minutes with this sanitizer": (
        "tests/api/test_reentrant_calls.py::test_a_handler_may_close_at_every_point[embed]",
        "tests/importer/test_references.py::test_computes_what_transformers_did[llama 4, beyond a chunk]",
    ),
}


def leave_out(items: Iterable[pytest.Item]) -> None:
    """Skips them, under a sanitizer."""
    sanitizers = system.build_info().sanitize
    if not sanitizers:
        return
    left_out = [*LEFT_OUT.items(), *(LEFT_OUT_OF_THREADS.items() if "thread" in sanitizers else ())]
    for item in items:
        for reason, beginnings in left_out:
            if item.nodeid.startswith(beginnings):
                item.add_marker(pytest.mark.skip(reason=f"under a sanitizer: {reason}"))
