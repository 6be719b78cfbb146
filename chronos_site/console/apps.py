from django.apps import AppConfig


class ConsoleConfig(AppConfig):
    name = "chronos_site.console"
    label = "console"
