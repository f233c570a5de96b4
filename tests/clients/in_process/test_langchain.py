"""LangChain's standard tests, which its own partner packages have to pass, on a published model of 135M parameters."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_tests.integration_tests import ChatModelIntegrationTests, EmbeddingsIntegrationTests
from langchain_tests.unit_tests import ChatModelUnitTests, EmbeddingsUnitTests

from pyggml.integrations.langchain import ChatPyggml, PyggmlEmbeddings

MODEL = os.environ["PYGGML_TEST_MODEL"]
LOAD_OPTIONS = {"n_ctx": 8192}
NO_CALL = "a model of 135M parameters does not decide by itself to call a tool"
NO_KEYS = "a model of 135M parameters does not write the keys that a prompt asks for"


@pytest.fixture(scope="module", autouse=True)
def loaded() -> Iterator[None]:
    """Keeps the model loaded between tests, each of which makes an object of its own."""
    kept = ChatPyggml(model=MODEL, load_options=LOAD_OPTIONS), PyggmlEmbeddings(MODEL, LOAD_OPTIONS)
    yield
    del kept


class TestChatUnit(ChatModelUnitTests):
    @property
    def chat_model_class(self) -> type[ChatPyggml]:
        return ChatPyggml

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {}  # the demonstration model, whose name is the same everywhere


class TestChat(ChatModelIntegrationTests):
    @property
    def chat_model_class(self) -> type[ChatPyggml]:
        return ChatPyggml

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": MODEL, "load_options": LOAD_OPTIONS, "temperature": 0, "max_tokens": 128}

    @property
    def supports_json_mode(self) -> bool:
        return True

    @pytest.mark.xfail(reason=NO_KEYS, strict=True)
    def test_json_mode(self, model: BaseChatModel) -> None:
        super().test_json_mode(model)

    @pytest.mark.xfail(reason=NO_CALL, strict=True)
    def test_bind_runnables_as_tools(self, model: BaseChatModel) -> None:
        super().test_bind_runnables_as_tools(model)

    @pytest.mark.xfail(reason=NO_CALL, strict=True)
    @pytest.mark.parametrize("model", [{}, {"output_version": "v1"}], indirect=True)
    def test_agent_loop(self, model: BaseChatModel) -> None:
        super().test_agent_loop(model)


class TestEmbeddingsUnit(EmbeddingsUnitTests):
    @property
    def embeddings_class(self) -> type[PyggmlEmbeddings]:
        return PyggmlEmbeddings

    @property
    def embedding_model_params(self) -> dict[str, Any]:
        return {"model": MODEL, "load_options": LOAD_OPTIONS}


class TestEmbeddings(EmbeddingsIntegrationTests):
    @property
    def embeddings_class(self) -> type[PyggmlEmbeddings]:
        return PyggmlEmbeddings

    @property
    def embedding_model_params(self) -> dict[str, Any]:
        return {"model": MODEL, "load_options": LOAD_OPTIONS}
