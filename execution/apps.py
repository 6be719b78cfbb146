from django.apps import AppConfig


class ExecutionConfig(AppConfig):
    name = "execution"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # Models can be imported only now.
        from execution.dispatch import runtime  # noqa: PLC0415
        from execution.notifications import watch  # noqa: F401, PLC0415 - connects to Celery's signals
        from execution.notifications.channels import senders  # noqa: PLC0415
        from execution.notifications.source import NotificationSource  # noqa: PLC0415
        from execution.operations import register_kinds  # noqa: PLC0415
        from execution.publish import NOTIFICATIONS_QUEUE  # noqa: PLC0415
        from execution.quotas import register_quotas  # noqa: PLC0415

        register_kinds()
        register_quotas()
        runtime.deliver_from(NOTIFICATIONS_QUEUE, NotificationSource, senders=senders)
