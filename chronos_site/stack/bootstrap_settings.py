"""Settings of `up` and `demo` themselves: no database and no secret, since these commands make both.

The processes that they start run with `chronos_site.settings.base` and a full environment.
"""

INSTALLED_APPS = ["chronos_site.stack"]
DATABASES: dict[str, object] = {}
USE_TZ = True
TIME_ZONE = "UTC"
LOGGING_CONFIG = None
