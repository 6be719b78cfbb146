"""The web process: Django, behind the limit on bodies, and the WebSockets. Its last spans are sent before it ends.

Every view is synchronous, so Django runs as the WSGI application that it then is, each request whole on one thread of a
pool: as an ASGI application it would change threads for every middleware, and start a thread for every request.
"""

import os
from typing import Any, cast

from channels.routing import URLRouter
from django.conf import settings
from django.contrib.staticfiles.finders import get_finders
from django.core.wsgi import get_wsgi_application
from django.urls import path, re_path
from servestatic import ServeStatic

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chronos_site.settings.base")

_django = get_wsgi_application()

# The limit's own module needs Django's registry, so it comes after the line above.
from bulk.sockets import BulkJobSocket  # noqa: E402
from chronos_site.api.body_limit import App, BodyLimit, Uploads  # noqa: E402
from chronos_site.infra.wsgi import WsgiThreads  # noqa: E402
from chronos_site.observability.tracing import FlushAtShutdown  # noqa: E402
from chronos_site.tenancy.sockets import Nowhere  # noqa: E402
from execution.sockets import EventSocket  # noqa: E402


def _with_static_files(application: object) -> ServeStatic:
    """Those that were collected, else those of each app."""
    served = ServeStatic(application)
    folders = [settings.STATIC_ROOT] if settings.STATIC_ROOT else _folders_of_apps()
    for folder in folders:
        served.add_files(folder, prefix=settings.STATIC_URL)
    return served


def _folders_of_apps() -> list[str]:
    return [storage.location for finder in get_finders() for storage in getattr(finder, "storages", {}).values()]


_threaded = WsgiThreads(_with_static_files(_django), workers=settings.CHRONOS_WEB_THREADS)
FORM_BYTES = 64 * 1024
"""What a form with a file has beside the file."""

_uploads = Uploads(
    paths=frozenset({"/v1/bulk-jobs", "/admin/bulk/bulkjob/add/"}),
    max_bytes=settings.CHRONOS_BULK_MAX_BYTES + FORM_BYTES,
    # Each holds a thread for as long as its client takes: the others are for everybody else.
    at_once=max(1, settings.CHRONOS_WEB_THREADS // 2),
)
_http = BodyLimit(cast("App", _threaded), settings.DATA_UPLOAD_MAX_MEMORY_SIZE, _uploads)
_sockets = URLRouter(
    [
        path("ws/v1/bulk-jobs/<str:job_id>", BulkJobSocket.as_asgi()),
        path("ws/v1/executions", EventSocket.as_asgi()),
        re_path("", Nowhere.as_asgi()),
    ],
)


async def _by_protocol(scope: Any, receive: Any, send: Any) -> None:
    await (_sockets if scope["type"] == "websocket" else _http)(scope, receive, send)


application = FlushAtShutdown(_by_protocol)
