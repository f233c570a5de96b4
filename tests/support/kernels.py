"""Kernels of notebooks, to send cells to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager, start_new_kernel


class Kernel:
    """A kernel to send cells to."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self.manager = manager
        self.client = client

    def messages(self, code: str) -> list[tuple[str, dict[str, Any]]]:
        """Runs a cell, which must not fail. Returns the types and contents of the messages that it sent."""
        sent: list[tuple[str, dict[str, Any]]] = []
        reply = self.client.execute_interactive(
            code, output_hook=lambda message: sent.append((message["msg_type"], message["content"])), timeout=100
        )
        assert reply["content"]["status"] == "ok", reply["content"]
        return sent

    def run(self, code: str) -> tuple[str, str]:
        """Runs a cell. Returns what it printed or showed, and the name of the exception that ended it."""
        shown: list[str] = []

        def note(message: dict[str, Any]) -> None:
            content = message["content"]
            shown.append(content.get("text", "") or content.get("data", {}).get("text/plain", ""))

        reply = self.client.execute_interactive(code, output_hook=note, timeout=100)
        return "".join(shown), reply["content"].get("ename", "")

    def interrupt(self, code: str) -> tuple[str, list[str]]:
        """Starts a cell, and interrupts it once it prints or shows something.

        Returns the name of the exception that ended it, and the texts of displays that it replaced.
        """
        has_shown, replaced = False, []

        def interrupt(message: dict[str, Any]) -> None:
            nonlocal has_shown
            if message["msg_type"] in ("stream", "display_data") and not has_shown:
                has_shown = True
                self.manager.interrupt_kernel()
            if message["msg_type"] == "update_display_data":
                replaced.append(message["content"]["data"]["text/plain"])

        reply = self.client.execute_interactive(code, output_hook=interrupt, timeout=100)
        return str(reply["content"].get("ename", "")), replaced


@contextlib.contextmanager
def kernel(first_cell: str) -> Iterator[Kernel]:
    """Starts a kernel, and runs a cell."""
    manager, client = start_new_kernel()
    try:
        kernel = Kernel(manager, client)
        kernel.messages(first_cell)
        yield kernel
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
