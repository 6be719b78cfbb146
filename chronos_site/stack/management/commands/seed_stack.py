"""`manage.py seed_stack`: a superuser and a first workspace with an API key, where they are missing."""

import json
from argparse import ArgumentParser
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand
from django.db import transaction

from chronos_site.settings import env
from chronos_site.tenancy import services
from chronos_site.tenancy.models import Workspace


class Command(BaseCommand):
    help = "Makes a superuser (password from DJANGO_SUPERUSER_PASSWORD) and a workspace with a key, where missing."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--workspace", required=True, help="name of the workspace")
        parser.add_argument("--admin", required=True, help="name of the superuser")

    @transaction.atomic
    def handle(self, *, workspace: str, admin: str, **_options: Any) -> None:
        """Prints `seeded {"api_key": …}`: the new key in plain, or null where the workspace was there."""
        users = get_user_model()
        if not users.objects.filter(username=admin).exists():
            users.objects.create_superuser(username=admin, password=env.text("DJANGO_SUPERUSER_PASSWORD"))
        api_key: str | None = None
        if not Workspace.objects.filter(name=workspace).exists():
            made = services.create_workspace(name=workspace)
            _, api_key = services.create_api_key(workspace=made, name="first key")
        self.stdout.write(f"seeded {json.dumps({'api_key': api_key})}")
