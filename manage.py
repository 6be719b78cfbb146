#!/usr/bin/env python
"""Entry point of every management command."""

import os
import sys

from django.core.management import execute_from_command_line

STACK_COMMANDS = {"up", "demo"}
"""They make the database and the secrets that the site's settings ask for, so they run with settings of their own."""


def main() -> None:
    if sys.argv[1:2] and sys.argv[1] in STACK_COMMANDS:
        os.environ["DJANGO_SETTINGS_MODULE"] = "chronos_site.stack.bootstrap_settings"
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chronos_site.settings.base")
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
