from django.apps import AppConfig


class ExecutionConfig(AppConfig):
    name = "execution"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # Models can be imported only now.
        from execution.operations import register_kinds  # noqa: PLC0415
        from execution.quotas import register_quotas  # noqa: PLC0415

        register_kinds()
        register_quotas()
