"""The pytest plugin: fixtures for the tests of programs that use pyggml."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

OPTIONS = ("-p", "no:cacheprovider", "-p", "no:xdist")


def run(pytester: pytest.Pytester, tests: str) -> pytest.RunResult:
    pytester.makeini("[pytest]")  # or pytest looks for a configuration and a conftest.py in the folders above
    pytester.makepyfile(tests)
    return pytester.runpytest_subprocess(*OPTIONS)


@pytest.mark.slow
def test_the_shipped_model_for_all_tests(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        """
        import pyggml, pytest

        ANSWERS = []

        @pytest.mark.parametrize("i", range(2))
        def test_it_answers(pyggml_llm, pyggml_no_leaks, i):
            ANSWERS.append((id(pyggml_llm), pyggml_llm.generate("The little dog", temperature=1.0, seed=1).text))
            assert pyggml_llm.embed(["a"]).shape[0] == 1

        def test_one_model_and_the_same_text():
            assert len(set(ANSWERS)) == 1

        def test_a_path(pyggml_model_path, pyggml_no_leaks):
            with pyggml.load(pyggml_model_path) as llm:
                assert llm.generate("The", max_tokens=1).token_ids
        """,
    )
    done.assert_outcomes(passed=4)


@pytest.mark.slow
def test_leaks_are_found(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        """
        import pyggml, pytest

        KEPT = []

        @pytest.fixture
        def llm():
            return pyggml.load()

        def test_that_leaks(pyggml_no_leaks):
            KEPT.append(pyggml.load())

        def test_that_leaks_nothing(pyggml_no_leaks, llm):
            llm.generate("a", max_tokens=1)

        def test_that_fails_keeps_its_own(pyggml_no_leaks, llm):
            assert llm is None

        def test_unwatched(llm):
            KEPT.append(llm)
        """,
    )
    done.assert_outcomes(passed=3, failed=1, errors=1)
    done.stdout.fnmatch_lines(["*this test leaks native objects: 1 chat_templates, 1 engine, 1 model"])


@pytest.mark.slow
def test_pytest_starts_without_the_library(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        """
        import sys

        LIGHT = {"pyggml", "pyggml._core", "pyggml._core.moved_modules", "pyggml._version", "pyggml.pytest_plugin"}

        def test_nothing_was_imported():
            assert not {"numpy", "_cffi_backend", "tokenizers"} & sys.modules.keys()
            assert {name for name in sys.modules if name.partition(".")[0] == "pyggml"} == LIGHT
        """,
    )
    done.assert_outcomes(passed=1)


@pytest.mark.slow
def test_they_are_listed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_nothing(): pass")
    done = pytester.runpytest_subprocess("--fixtures", *OPTIONS)
    done.stdout.fnmatch_lines(["*pyggml_llm*pyggml/pytest_plugin.py*", "*The small model, loaded once*"])
