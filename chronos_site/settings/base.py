"""Settings of every kind of process. What differs by deployment comes from the environment, through `env`."""

from pathlib import Path

from . import env
from .theme import LABELS, theme

BASE_DIR = Path(__file__).resolve().parent.parent.parent

SECRET_KEY = env.text("DJANGO_SECRET_KEY")
DEBUG = env.flag("DJANGO_DEBUG", default=False)
ALLOWED_HOSTS = env.items("ALLOWED_HOSTS", "127.0.0.1,localhost,[::1]")
CSRF_TRUSTED_ORIGINS = env.items("CSRF_TRUSTED_ORIGINS")

INSTALLED_APPS = [
    "unfold",
    "unfold.contrib.filters",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django_celery_beat",
    "chronos_site.api",
    "chronos_site.tenancy",
    "execution",
    "scheduling",
    "bulk",
    "chronos_site.stack",
    "chronos_site.console",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "chronos_site.observability.middleware.RequestIdMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "chronos_site.urls"
ASGI_APPLICATION = "chronos_site.asgi.application"
APPEND_SLASH = False

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

DATABASES = {
    "default": env.postgres(
        "DATABASE_URL",
        pool={
            "min_size": env.integer("DB_POOL_MIN", 1, low=0, high=50),
            "max_size": env.integer("DB_POOL_MAX", 4, low=1, high=100),
            # Below the time after which beat counts a tick as stale: a leader must not lose its lock to a slow pool.
            "timeout": 4,
            # Else the pool waits longer and longer after an outage, up to minutes, before it looks again.
            "reconnect_timeout": 5,
            "max_lifetime": 600,
        },
    ),
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
REDIS_URL = env.redis_url("REDIS_URL")
# Messages to open WebSockets. Published, not kept: a process that dies leaves nothing behind.
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {
            "hosts": [{"address": REDIS_URL, "socket_connect_timeout": 3, "socket_keepalive": True}],
            "prefix": "chronos-sockets",
        },
    }
}
MONGO_URL = env.optional("MONGO_URL")
MONGO_DATABASE = env.text("MONGO_DATABASE", "chronos")

# The mail server, by Django's own names. Without one no e-mail is sent.
_EMAIL = env.email("EMAIL_URL")
EMAIL_HOST, EMAIL_PORT = _EMAIL.host, _EMAIL.port
EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = _EMAIL.user, _EMAIL.password
EMAIL_USE_TLS, EMAIL_USE_SSL = _EMAIL.starttls, _EMAIL.tls
EMAIL_TIMEOUT = 15
DEFAULT_FROM_EMAIL = env.text("EMAIL_FROM", "chronos@localhost")

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]

LANGUAGE_CODE = "en"
USE_TZ = True
TIME_ZONE = "UTC"
USE_I18N = False
FORMAT_MODULE_PATH = ["chronos_site.console.formats"]

STATIC_URL = "/static/"
# Without it static files are served from where the apps keep them; images run collectstatic.
STATIC_ROOT = env.optional("STATIC_ROOT")
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
    # `objects`: the files that users upload and that are made for them; absent where STORAGE_URL is not set.
    **env.storage("STORAGE_URL"),
}

SILENCED_SYSTEM_CHECKS: list[str] = []

# --- API -------------------------------------------------------------------------------------------------------------

DATA_UPLOAD_MAX_MEMORY_SIZE = env.integer("CHRONOS_MAX_BODY_BYTES", 16 * 1024 * 1024, low=1024, high=1 << 30)

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["chronos_site.tenancy.authentication.ApiKeyAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["chronos_site.tenancy.permissions.HasScope"],
    "DEFAULT_THROTTLE_CLASSES": ["chronos_site.tenancy.throttling.ApiRateThrottle"],
    "DEFAULT_PARSER_CLASSES": [
        "chronos_site.api.parsers.StrictJSONParser",
        "chronos_site.api.parsers.MergePatchParser",
    ],
    "DEFAULT_RENDERER_CLASSES": ["chronos_site.api.renderers.FastJSONRenderer"],
    "DEFAULT_SCHEMA_CLASS": "chronos_site.api.schema.ProblemAutoSchema",
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "chronos_site.api.negotiation.JsonAlways",
    "DEFAULT_METADATA_CLASS": None,
    "EXCEPTION_HANDLER": "chronos_site.api.problems.exception_handler",
    "UNAUTHENTICATED_USER": None,
    "UNAUTHENTICATED_TOKEN": None,
}

SPECTACULAR_SETTINGS = {
    "TITLE": "Chronos",
    "DESCRIPTION": "Schedules jobs and delivers each at least once, at its second.",
    "VERSION": "1.0.0",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SCHEMA_PATH_PREFIX": r"/v1",
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
    "COMPONENT_SPLIT_REQUEST": True,
    "ENUM_NAME_OVERRIDES": {
        "JobKind": "execution.models.JobKind",
        "ExecutionState": "execution.domain.states.State",
        "ScheduleKind": "scheduling.models.Schedule.Kind",
        "ScheduleState": "scheduling.models.Schedule.State",
        "BulkJobState": "bulk.domain.states.JobState",
        "BulkRecordState": "bulk.domain.states.RecordState",
        "Scope": "chronos_site.tenancy.models.Scope",
        "NotificationChannelKind": "execution.models.NotificationChannel.Kind",
        "NotificationEvent": "execution.models.NotificationRule.Event",
    },
}

# --- Celery ----------------------------------------------------------------------------------------------------------

CELERY_BROKER_URL = REDIS_URL

# --- Chronos ---------------------------------------------------------------------------------------------------------

# Seconds that the fire loop looks ahead; the engine holds each execution until its exact time.
CHRONOS_DISPATCH_HORIZON_S = env.number("CHRONOS_DISPATCH_HORIZON", 2.0, low=0.1, high=30)
# Shards of one minute's executions: more shards, more fan-outs side by side.
CHRONOS_BUCKET_SHARDS = env.integer("CHRONOS_BUCKET_SHARDS", 4, low=1, high=1024)
# How far in the past a run_at may lie and still fire now.
CHRONOS_RUN_AT_GRACE_S = env.number("CHRONOS_RUN_AT_GRACE", 300, low=0, high=86_400)
# Shortest time between two occurrences of a recurring schedule.
CHRONOS_MIN_INTERVAL_S = env.integer("CHRONOS_MIN_INTERVAL", 1, low=1, high=86_400)
# Most executions that one worker process has claimed and not yet finished.
CHRONOS_MAX_IN_FLIGHT = env.integer("CHRONOS_MAX_IN_FLIGHT", 1000, low=1, high=20_000)
# Failures in a row after which a destination is left alone, and for how long: at first, and at most.
CHRONOS_BREAKER_FAILURES = env.integer("CHRONOS_BREAKER_FAILURES", 20, low=1, high=1_000_000)
CHRONOS_BREAKER_PAUSE_S = env.number("CHRONOS_BREAKER_PAUSE", 5, low=0.1, high=3600)
CHRONOS_BREAKER_LONGEST_PAUSE_S = env.number("CHRONOS_BREAKER_LONGEST_PAUSE", 60, low=0.1, high=3600)
# How long a polite stop waits for sends under way before it lets go.
CHRONOS_STOP_GRACE_S = env.number("CHRONOS_STOP_GRACE", 25, low=0, high=3600)
# Bytes of one file of a bulk job.
CHRONOS_BULK_MAX_BYTES = env.integer("CHRONOS_BULK_MAX_BYTES", 2 * 1024**3, low=1024, high=1 << 40)
# Exact networks that deliveries may reach although they are not public.
CHRONOS_EGRESS_ALLOW = env.networks("CHRONOS_EGRESS_ALLOW")
# The Kafka cluster of this deployment, others that targets may name, and what a client needs to log in there.
KAFKA_BOOTSTRAP = env.bootstrap("KAFKA_BOOTSTRAP")
KAFKA_BOOTSTRAP_ALLOW = env.bootstraps("KAFKA_BOOTSTRAP_ALLOW")
KAFKA_PROPERTIES_FILE = env.absolute_path("KAFKA_PROPERTIES_FILE")
# About how many events the stream job-events keeps, half a gigabyte of Redis' memory for each million.
CHRONOS_EVENTS_MAX = env.integer("CHRONOS_EVENTS_MAX", 1_000_000, low=1000, high=1_000_000_000)
# Threads of the web process, each of which serves one request at a time.
CHRONOS_WEB_THREADS = env.integer("CHRONOS_WEB_THREADS", 8, low=1, high=256)
# One file for each process, touched while it consumes (a worker) or ticks (beat); none where it is not set.
CHRONOS_LIVENESS_FILE = env.absolute_path("CHRONOS_LIVENESS_FILE")
# Where workers, beats and the reader of events show their metrics; 0: nowhere. The web process does at /metrics.
CHRONOS_METRICS_PORT = env.integer("CHRONOS_METRICS_PORT", 0, low=0, high=65_535)
CHRONOS_METRICS_ADDRESS = env.text("CHRONOS_METRICS_ADDRESS", "127.0.0.1")
# Where the values of secret:// references are kept.
CHRONOS_SECRET_PROVIDER = env.choice("CHRONOS_SECRET_PROVIDER", "environment", "environment", "mounted", "kubernetes")
# Seconds after which a value is read anew: a rotated secret is used that soon.
CHRONOS_SECRET_TTL_S = env.number("CHRONOS_SECRET_TTL", 30, low=0, high=3600)
CHRONOS_SECRETS_DIR = env.absolute_path("CHRONOS_SECRETS_DIR")
CHRONOS_SECRETS_FROM_ENVIRONMENT: dict[str, str] = {}
CHRONOS_KUBERNETES_URL = ""
match CHRONOS_SECRET_PROVIDER:
    case "mounted" if CHRONOS_SECRETS_DIR is None:
        env.refuse("CHRONOS_SECRETS_DIR is not set. Name the folder that the secrets are mounted in.")
    case "environment":
        CHRONOS_SECRETS_FROM_ENVIRONMENT = env.secret_variables()
    case "kubernetes":
        CHRONOS_KUBERNETES_URL = env.kubernetes_url()
CHRONOS_KUBERNETES_ACCOUNT_DIR = "/var/run/secrets/kubernetes.io/serviceaccount"
# Namespaces whose secrets the site's own notification channels may use.
CHRONOS_SITE_SECRET_NAMESPACES = env.secret_namespaces("CHRONOS_SITE_SECRET_NAMESPACES")
# Where events for PagerDuty go.
CHRONOS_PAGERDUTY_URL = env.http_url("CHRONOS_PAGERDUTY_URL", "https://events.pagerduty.com")
CHRONOS_LEADER_TTL_S = env.number("CHRONOS_LEADER_TTL", 30, low=1, high=600)
CHRONOS_MAX_PAYLOAD_BYTES = env.integer("CHRONOS_MAX_PAYLOAD_BYTES", 256 * 1024, low=1, high=16 * 1024 * 1024)
# Days that ended executions are kept; one with an open dead letter stays until that is resolved.
CHRONOS_RETENTION_DAYS = env.integer("CHRONOS_RETENTION_DAYS", 30, low=1, high=3650)
CHRONOS_LOG_TTL_DAYS = env.integer("CHRONOS_LOG_TTL_DAYS", 30, low=1, high=3650)
CHRONOS_RATE_LIMIT_PER_KEY = env.integer("CHRONOS_RATE_LIMIT_PER_KEY", 500, low=1, high=1_000_000)
CHRONOS_RATE_LIMIT_PER_WORKSPACE = env.integer("CHRONOS_RATE_LIMIT_PER_WORKSPACE", 1000, low=1, high=1_000_000)

# Where spans are sent: OTLP over HTTP, protobuf; None is nowhere. Sampler, headers, timeout, compression and
# certificates are variables of OpenTelemetry's own, read by its SDK.
CHRONOS_TRACES_ENDPOINT = env.traces_endpoint()
# Spans that wait to be sent; what is beyond is dropped, the oldest first.
CHRONOS_TRACES_CAPACITY = env.integer("OTEL_BSP_MAX_QUEUE_SIZE", 8192, low=1, high=1_000_000)

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"json": {"()": "chronos_site.observability.logs.JsonFormatter"}},
    "handlers": {
        "stderr": {"class": "logging.StreamHandler", "formatter": "json"},
        "none": {"class": "logging.NullHandler"},
    },
    "root": {"handlers": ["stderr"], "level": env.text("LOG_LEVEL", "INFO")},
    "loggers": {
        "django.request": {"level": "ERROR"},
        "django.server": {"level": "WARNING"},
        # A line for every tick of every second would bury what matters.
        "celery.app.trace": {"level": "WARNING"},
        "celery.worker.strategy": {"level": "WARNING"},
        "celery.beat": {"level": "WARNING"},
        "psycopg.pool": {"level": "WARNING"},
        # What it says of a send is kept with the notification; it may quote what only its workspace should read.
        "apprise": {"level": "WARNING", "propagate": False, "handlers": ["none"]},
    },
}

# --- Admin -----------------------------------------------------------------------------------------------------------

# Where Flower is, for a link on the first page; none where it is not set.
CHRONOS_FLOWER_URL = env.optional("CHRONOS_FLOWER_URL")

# What the admin calls this deployment, and in which colour.
UNFOLD = theme(
    environment=env.text("CHRONOS_ENVIRONMENT", ""),
    colour=env.choice("CHRONOS_ENVIRONMENT_COLOUR", "info", *LABELS),
)
