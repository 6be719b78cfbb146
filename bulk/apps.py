from django.apps import AppConfig


class BulkConfig(AppConfig):
    name = "bulk"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # The source needs models, which can be imported only now.
        from bulk.publish import RECORDS_QUEUE  # noqa: PLC0415
        from bulk.source import RecordSource  # noqa: PLC0415
        from execution.dispatch import runtime  # noqa: PLC0415

        runtime.deliver_from(RECORDS_QUEUE, RecordSource)
