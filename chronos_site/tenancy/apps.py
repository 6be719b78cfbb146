from importlib import import_module

from django.apps import AppConfig


class TenancyConfig(AppConfig):
    name = "chronos_site.tenancy"
    label = "tenancy"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # Registers the bearer scheme with the OpenAPI generator.
        import_module("chronos_site.tenancy.openapi")
