"""A real SMTP server on loopback, which keeps what it was sent and answers as told."""

from email import message_from_bytes, policy
from email.message import EmailMessage
from types import TracebackType
from typing import Any, Self

from aiosmtpd.controller import Controller

from chronos_site.stack.processes import free_port


class MailServer:
    """`messages` is what has come so far; `answers` are used in turn, the last one stays."""

    def __init__(self) -> None:
        self.messages: list[EmailMessage] = []
        self.recipients: list[list[str]] = []
        self.answers = ["250 OK"]
        self.refused: dict[str, str] = {}
        """Answers to recipients."""
        self._controller = Controller(self, hostname="127.0.0.1", port=free_port())

    def __enter__(self) -> Self:
        self._controller.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._controller.stop()

    @property
    def port(self) -> int:
        return int(self._controller.port)

    async def handle_RCPT(  # noqa: N802 - named by the library
        self, _server: Any, _session: Any, envelope: Any, address: str, _options: list[str]
    ) -> str:
        if address in self.refused:
            return self.refused[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer.startswith("250"):
            self.messages.append(message_from_bytes(envelope.content, EmailMessage, policy=policy.default))
            self.recipients.append(list(envelope.rcpt_tos))
        return answer
