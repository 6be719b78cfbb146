from django.apps import AppConfig


class SchedulingConfig(AppConfig):
    name = "scheduling"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # Models can be imported only now.
        from scheduling.backfill import register_kinds  # noqa: PLC0415

        register_kinds()
