from django.apps import AppConfig


class StackConfig(AppConfig):
    name = "chronos_site.stack"
    label = "stack"
    verbose_name = "Embedded stack"
