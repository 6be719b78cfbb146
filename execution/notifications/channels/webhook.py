"""Webhooks: the content as JSON, signed after Standard Webhooks, sent like any HTTP delivery."""

from execution.notifications.channels.prepared import Prepared, Settings
from execution.notifications.content import Content


def prepare(content: Content, settings: Settings) -> list[Prepared]:
    target = {"method": "POST", "headers": {}, **settings}
    return [Prepared(target, {"type": f"notification.{content['event']}", "data": content})]
