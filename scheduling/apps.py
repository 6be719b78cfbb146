from django.apps import AppConfig


class SchedulingConfig(AppConfig):
    name = "scheduling"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # Models can be imported only now.
        from execution.search import find_schedules_by  # noqa: PLC0415
        from scheduling.backfill import register_kinds  # noqa: PLC0415
        from scheduling.quotas import register_quotas  # noqa: PLC0415
        from scheduling.selectors import ids_by_key  # noqa: PLC0415

        register_kinds()
        register_quotas()
        find_schedules_by(ids_by_key)
