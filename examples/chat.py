"""A chat in a terminal: answers stream, Ctrl-C stops one and keeps the conversation, /reset starts a new one.

python examples/chat.py -m model.gguf          needs prompt_toolkit, which the extra "cli" installs
"""

from __future__ import annotations

import argparse
import sys

from prompt_toolkit import PromptSession, print_formatted_text
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.formatted_text import FormattedText

import pyggml

HELP = """\
/reset  start a new conversation
/retry  answer the last question again
/quit   leave, as Ctrl-D does
Ctrl-C  stop an answer; the part that you have seen stays in the conversation"""


class Chat:
    """A conversation with a model.

    Attributes:
        n_tokens: length of the conversation in tokens.
    """

    def __init__(self, llm: pyggml.LLM, system: str) -> None:
        self._llm = llm
        self._system = [{"role": "system", "content": system}] if system else []
        self.reset()

    def reset(self) -> None:
        """Forget all but the system message."""
        self._messages = list(self._system)
        self.n_tokens = 0

    def ask(self, question: str) -> None:
        """Answer a question."""
        self._answer([*self._messages, {"role": "user", "content": question}])

    def retry(self) -> None:
        """Answer the last question again."""
        if len(self._messages) < 2:
            show(("ansired", "There is no answer yet.\n"))
        else:
            self._answer(self._messages[:-1])

    def _answer(self, messages: list[dict[str, str]]) -> None:
        """Print an answer as it is generated. Without any of it, the conversation stays as it was."""
        answer, n_generated = "", 0
        try:
            with self._llm.stream_chat(messages) as stream:  # leaving it cancels what is still to come
                for chunk in stream:
                    show(("ansibrightblack", chunk.reasoning_content), ("", chunk.content))
                    answer += chunk.content
                    n_generated += len(chunk.token_ids)
                    self.n_tokens = stream.prompt_tokens + n_generated
        except KeyboardInterrupt:
            show(("ansiyellow", " [stopped]"))
        show(("", "\n"))
        if answer:
            self._messages = [*messages, {"role": "assistant", "content": answer}]


def show(*fragments: tuple[str, str]) -> None:
    """Print texts in styles, without a line break."""
    print_formatted_text(FormattedText(fragments), end="", flush=True)


def run_line(chat: Chat, line: str) -> None:
    """Run a command, or ask a question."""
    match line.split():
        case []:
            pass
        case ["/reset"]:
            chat.reset()
        case ["/retry"]:
            chat.retry()
        case ["/quit"]:
            raise EOFError
        case [command, *_] if command.startswith("/"):
            show(("", f"{HELP}\n"))
        case _:
            chat.ask(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default=pyggml.SHIPPED_MODEL, help="GGUF file, directory or hf:org/repo")
    parser.add_argument("-s", "--system", default="", help="system message")
    args = parser.parse_args()
    with pyggml.load(args.model, n_parallel=1) as llm:
        chat = Chat(llm, args.system)
        session: PromptSession[str] = PromptSession(
            "> ",
            completer=WordCompleter(["/help", "/reset", "/retry", "/quit"], sentence=True),
            bottom_toolbar=lambda: f"{llm.model.desc}: {chat.n_tokens:,} of {llm.n_ctx:,} tokens. /help for help",
        )
        while True:
            try:
                run_line(chat, session.prompt())
            except KeyboardInterrupt:  # at the prompt, Ctrl-C clears the line
                continue
            except EOFError:
                return
            except pyggml.InferError as error:  # such as a conversation that is longer than the context
                show(("ansired", f"{error}\n"))


if __name__ == "__main__":
    try:
        main()
    except pyggml.InferError as error:
        sys.exit(f"chat.py: {error}")
