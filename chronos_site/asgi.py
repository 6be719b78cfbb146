"""The web process: Django, behind the limit on bodies. Its last spans are sent before it ends."""

import os

from django.conf import settings
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chronos_site.settings.base")

_django = get_asgi_application()

# The limit's own module needs Django's registry, so it comes after the line above.
from chronos_site.api.body_limit import BodyLimit  # noqa: E402
from chronos_site.observability.tracing import FlushAtShutdown  # noqa: E402

application = FlushAtShutdown(BodyLimit(_django, settings.DATA_UPLOAD_MAX_MEMORY_SIZE))
