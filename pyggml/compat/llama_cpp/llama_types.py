"""Types of messages, tools and results, as dictionaries, by llama-cpp-python's names.

They describe OpenAI's format. Nothing checks them at run time; pydantic and type checkers read them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Union

if TYPE_CHECKING:
    from typing_extensions import NotRequired, TypedDict
else:
    try:  # pydantic before Python 3.12 accepts no other TypedDict
        from typing_extensions import NotRequired, TypedDict
    except ImportError:
        from typing import TypedDict

        NotRequired = Union  # NotRequired[X] is then X

JsonType: TypeAlias = Union[int, str, bool, list[Any], dict[str, Any], None]  # noqa: UP007  # pydantic reads it, in Python 3.10 too

# --- embeddings -------------------------------------------------------------------------------------------------------


class EmbeddingUsage(TypedDict):
    """Token counts of an embedding."""

    prompt_tokens: int
    total_tokens: int


class Embedding(TypedDict):
    """The embedding of one text: a vector, or without pooling one for each token."""

    index: int
    object: str
    embedding: list[float] | list[list[float]]


class CreateEmbeddingResponse(TypedDict):
    """The embeddings of several texts."""

    object: Literal["list"]
    model: str
    data: list[Embedding]
    usage: EmbeddingUsage


# --- completions ------------------------------------------------------------------------------------------------------


class CompletionLogprobs(TypedDict):
    """Log probabilities of a completion's tokens; None for a first token that follows nothing."""

    text_offset: list[int]
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]


class CompletionChoice(TypedDict):
    """The text of a completion."""

    text: str
    index: int
    logprobs: CompletionLogprobs | None
    finish_reason: Literal["stop", "length"] | None


class CompletionUsage(TypedDict):
    """Token counts of a completion."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class CreateCompletionResponse(TypedDict):
    """A completion, or a chunk of one, which has no usage."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: NotRequired[CompletionUsage]


# --- results of chats -------------------------------------------------------------------------------------------------


class ChatCompletionResponseFunctionCall(TypedDict):
    """The call to a function, in OpenAI's older format."""

    name: str
    arguments: str


class ChatCompletionMessageToolCallFunction(TypedDict):
    """Name and arguments, JSON text, of a tool call."""

    name: str
    arguments: str


class ChatCompletionMessageToolCall(TypedDict):
    """A tool call."""

    id: str
    type: Literal["function"]
    function: ChatCompletionMessageToolCallFunction


ChatCompletionMessageToolCalls: TypeAlias = list[ChatCompletionMessageToolCall]


class ChatCompletionResponseMessage(TypedDict):
    """The answer's message."""

    content: str | None
    tool_calls: NotRequired[ChatCompletionMessageToolCalls]
    role: Literal["assistant", "function"]
    function_call: NotRequired[ChatCompletionResponseFunctionCall]


class ChatCompletionTopLogprobToken(TypedDict):
    """An alternative to a token."""

    token: str
    logprob: float
    bytes: list[int] | None


class ChatCompletionLogprobToken(ChatCompletionTopLogprobToken):
    """A token of an answer, with its alternatives."""

    top_logprobs: list[ChatCompletionTopLogprobToken]


class ChatCompletionLogprobs(TypedDict):
    """Log probabilities of an answer's tokens."""

    content: list[ChatCompletionLogprobToken] | None
    refusal: list[ChatCompletionLogprobToken] | None


class ChatCompletionResponseChoice(TypedDict):
    """The answer."""

    index: int
    message: ChatCompletionResponseMessage
    logprobs: ChatCompletionLogprobs | None
    finish_reason: str | None


class CreateChatCompletionResponse(TypedDict):
    """A chat completion."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatCompletionResponseChoice]
    usage: CompletionUsage


# --- streams of chats -------------------------------------------------------------------------------------------------


class ChatCompletionMessageToolCallChunkFunction(TypedDict):
    """Part of a tool call: its name, and text to append to its arguments."""

    name: str | None
    arguments: str


class ChatCompletionMessageToolCallChunk(TypedDict):
    """Part of a tool call."""

    index: int
    id: NotRequired[str]
    type: Literal["function"]
    function: ChatCompletionMessageToolCallChunkFunction


class ChatCompletionStreamResponseDeltaEmpty(TypedDict):
    """No addition."""


class ChatCompletionStreamResponseDeltaFunctionCall(TypedDict):
    """Part of a function call, in OpenAI's older format."""

    name: str
    arguments: str


class ChatCompletionStreamResponseDelta(TypedDict):
    """The addition of a chunk to the message."""

    content: NotRequired[str | None]
    function_call: NotRequired[ChatCompletionStreamResponseDeltaFunctionCall | None]
    tool_calls: NotRequired[list[ChatCompletionMessageToolCallChunk] | None]
    role: NotRequired[Literal["system", "user", "assistant", "tool"] | None]


class ChatCompletionStreamResponseChoice(TypedDict):
    """The answer's part in a chunk."""

    index: int
    delta: ChatCompletionStreamResponseDelta | ChatCompletionStreamResponseDeltaEmpty
    finish_reason: Literal["stop", "length", "tool_calls", "function_call"] | None
    logprobs: NotRequired[ChatCompletionLogprobs | None]


class CreateChatCompletionStreamResponse(TypedDict):
    """A chunk of a chat completion."""

    id: str
    model: str
    object: Literal["chat.completion.chunk"]
    created: int
    choices: list[ChatCompletionStreamResponseChoice]


# --- requests ---------------------------------------------------------------------------------------------------------


class ChatCompletionFunctions(TypedDict):
    """A function, in OpenAI's older format."""

    name: str
    description: NotRequired[str]
    parameters: dict[str, JsonType]


class ChatCompletionFunction(ChatCompletionFunctions):
    """A function, in OpenAI's older format."""


class ChatCompletionFunctionCallOption(TypedDict):
    """The function to call, in OpenAI's older format."""

    name: str


class ChatCompletionRequestResponseFormat(TypedDict):
    """The form of the answer."""

    type: Literal["text", "json_object"]
    schema: NotRequired[JsonType]


class ChatCompletionRequestMessageContentPartText(TypedDict):
    """Text of a message."""

    type: Literal["text"]
    text: str


class ChatCompletionRequestMessageContentPartImageImageUrl(TypedDict):
    """Address of an image."""

    url: str
    detail: NotRequired[Literal["auto", "low", "high"]]


class ChatCompletionRequestMessageContentPartImage(TypedDict):
    """Image of a message."""

    type: Literal["image_url"]
    image_url: str | ChatCompletionRequestMessageContentPartImageImageUrl


ChatCompletionRequestMessageContentPart: TypeAlias = (
    ChatCompletionRequestMessageContentPartText | ChatCompletionRequestMessageContentPartImage
)


class ChatCompletionRequestSystemMessage(TypedDict):
    """A message with instructions."""

    role: Literal["system"]
    content: str | None


class ChatCompletionRequestUserMessage(TypedDict):
    """A user's message."""

    role: Literal["user"]
    content: str | list[ChatCompletionRequestMessageContentPart] | None


class ChatCompletionRequestAssistantMessageFunctionCall(TypedDict):
    """An earlier function call, in OpenAI's older format."""

    name: str
    arguments: str


class ChatCompletionRequestAssistantMessage(TypedDict):
    """An earlier answer."""

    role: Literal["assistant"]
    content: NotRequired[str | None]
    tool_calls: NotRequired[ChatCompletionMessageToolCalls]
    function_call: NotRequired[ChatCompletionRequestAssistantMessageFunctionCall]


class ChatCompletionRequestToolMessage(TypedDict):
    """The result of a tool call."""

    role: Literal["tool"]
    content: str | None
    tool_call_id: str


class ChatCompletionRequestFunctionMessage(TypedDict):
    """The result of a function call, in OpenAI's older format."""

    role: Literal["function"]
    content: str | None
    name: str


ChatCompletionRequestMessage: TypeAlias = (
    ChatCompletionRequestSystemMessage
    | ChatCompletionRequestUserMessage
    | ChatCompletionRequestAssistantMessage
    | ChatCompletionRequestToolMessage
    | ChatCompletionRequestFunctionMessage
)


class ChatCompletionRequestFunctionCallOption(TypedDict):
    """The function to call, in OpenAI's older format."""

    name: str


ChatCompletionRequestFunctionCall: TypeAlias = Literal["none", "auto"] | ChatCompletionRequestFunctionCallOption
ChatCompletionFunctionParameters: TypeAlias = dict[str, JsonType]


class ChatCompletionToolFunction(TypedDict):
    """The function of a tool; ``parameters`` is a JSON schema."""

    name: str
    description: NotRequired[str]
    parameters: ChatCompletionFunctionParameters


class ChatCompletionTool(TypedDict):
    """A tool that the model may call."""

    type: Literal["function"]
    function: ChatCompletionToolFunction


class ChatCompletionNamedToolChoiceFunction(TypedDict):
    """The function of the tool to call."""

    name: str


class ChatCompletionNamedToolChoice(TypedDict):
    """The tool to call."""

    type: Literal["function"]
    function: ChatCompletionNamedToolChoiceFunction


ChatCompletionToolChoiceOption: TypeAlias = Literal["none", "auto", "required"] | ChatCompletionNamedToolChoice

# --- other names of the same types ------------------------------------------------------------------------------------

EmbeddingData = Embedding
CompletionChunk = CreateCompletionResponse
Completion = CreateCompletionResponse
CreateCompletionStreamResponse = CreateCompletionResponse
ChatCompletionMessage = ChatCompletionResponseMessage
ChatCompletionChoice = ChatCompletionResponseChoice
ChatCompletion = CreateChatCompletionResponse
ChatCompletionChunkDeltaEmpty = ChatCompletionStreamResponseDeltaEmpty
ChatCompletionChunkChoice = ChatCompletionStreamResponseChoice
ChatCompletionChunkDelta = ChatCompletionStreamResponseDelta
ChatCompletionChunk = CreateChatCompletionStreamResponse
ChatCompletionStreamResponse = CreateChatCompletionStreamResponse
ChatCompletionResponseFunction = ChatCompletionFunction
ChatCompletionFunctionCall = ChatCompletionResponseFunctionCall
