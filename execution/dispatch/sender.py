"""The seam between the engine and a way of sending: what the engine asks of HTTP and of Kafka alike."""

from dataclasses import dataclass, field
from typing import Protocol

from execution.dispatch.credentials import Credentials
from execution.dispatch.egress import Verdict
from execution.domain.outcome import Claim


@dataclass(slots=True)
class Answer:
    """What came back: a status, a broker's word that it has the message, or a short error code with a text."""

    status: int | None
    error: str | None
    error_text: str
    headers: dict[str, str] = field(default_factory=dict)
    excerpt: str = ""
    duration_ms: float = 0.0
    kept: bool = False
    """A broker has the message; there is no status then."""


class Sender(Protocol):
    """For one event loop."""

    async def judge(self, claim: Claim) -> Verdict:
        """May this attempt go where its target says? Never raises."""

    async def send(self, claim: Claim, verdict: Verdict, credentials: Credentials) -> Answer:
        """One attempt within `claim.timeout_s`. Never raises but for cancellation. The answer holds no secret."""

    async def close(self) -> None:
        """Sends under way may end for a moment."""
