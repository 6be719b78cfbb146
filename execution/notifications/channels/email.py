"""E-mail over the site's SMTP server (`EMAIL_URL`), through Django's mail backend, on threads of its own.

The message's id is made from the notification's: a double can be told from a new one. What the server refuses for good
is not tried again; a server that is away, or asks to come back later, is.
"""

import asyncio
import smtplib
import time
from concurrent.futures import ThreadPoolExecutor

from django.conf import settings as site
from django.core.mail import EmailMessage, get_connection

from execution.dispatch import attempt_span
from execution.dispatch.credentials import NO_CREDENTIALS, Credentials
from execution.dispatch.egress import Verdict
from execution.dispatch.sender import Answer
from execution.domain.outcome import Claim
from execution.notifications.channels.prepared import Prepared, Settings
from execution.notifications.content import Content, text_of

BACKEND = "django.core.mail.backends.smtp.EmailBackend"
REFUSED = "channel_refused"
THREADS = 8
LATE_S = 5.0
"""Beyond an attempt's time the SMTP client may need so long to find out that nobody answers."""


def prepare(content: Content, settings: Settings) -> list[Prepared]:
    to = list(settings["to"])
    target = {"method": "EMAIL", "url": f"mailto:{','.join(to)}", "to": to}
    return [Prepared(target, {"subject": f"[Chronos] {content['title']}", "text": text_of(content)})]


class EmailSender:
    """For one event loop."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="email")

    async def judge(self, claim: Claim) -> Verdict:
        """The server is the operator's own: nobody else names it."""
        if not site.EMAIL_HOST:
            return Verdict(False, "this site sends no e-mail; set EMAIL_URL")
        return Verdict(True, address=site.EMAIL_HOST, host=site.EMAIL_HOST, port=site.EMAIL_PORT, scheme="smtp")

    async def send(self, claim: Claim, verdict: Verdict, credentials: Credentials = NO_CREDENTIALS) -> Answer:
        attempt_span.begin(claim, verdict)
        begun = time.monotonic()
        try:
            async with asyncio.timeout(claim.timeout_s + LATE_S):
                answer = await asyncio.get_running_loop().run_in_executor(self._threads, _send, claim)
        except TimeoutError:
            answer = Answer(None, "timeout", f"The mail server gave no answer within {claim.timeout_s:g} s.")
        answer.duration_ms = (time.monotonic() - begun) * 1000
        return answer

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _send(claim: Claim) -> Answer:
    try:
        _message(claim).send()
    except smtplib.SMTPRecipientsRefused as error:
        told = "; ".join(f"{to}: {code} {_text(text)}" for to, (code, text) in error.recipients.items())
        lasting = all(code >= 500 for code, _ in error.recipients.values())
        return Answer(None, REFUSED if lasting else "smtp", f"The mail server refused the recipients: {told}")
    except smtplib.SMTPAuthenticationError:
        return Answer(None, "smtp_login", "The mail server refused the login; look at EMAIL_URL.")
    except smtplib.SMTPResponseException as error:
        lasting = error.smtp_code >= 500
        told = f"The mail server answered {error.smtp_code} {_text(error.smtp_error)}"
        return Answer(None, REFUSED if lasting else "smtp", told)
    except (smtplib.SMTPException, OSError) as error:
        return Answer(None, "smtp", f"The mail server could not be used: {type(error).__name__}: {error}"[:500])
    return Answer(None, None, "", kept=True)


def _message(claim: Claim) -> EmailMessage:
    server = get_connection(
        BACKEND,
        host=site.EMAIL_HOST,
        port=site.EMAIL_PORT,
        username=site.EMAIL_HOST_USER,
        password=site.EMAIL_HOST_PASSWORD,
        use_tls=site.EMAIL_USE_TLS,
        use_ssl=site.EMAIL_USE_SSL,
        timeout=claim.timeout_s,
    )
    return EmailMessage(
        subject=claim.payload["subject"],
        body=claim.payload["text"],
        to=claim.target["to"],
        headers={"Message-ID": f"<{claim.id}@chronos>", "Auto-Submitted": "auto-generated"},
        connection=server,
    )


def _text(said: bytes | str) -> str:
    return said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
