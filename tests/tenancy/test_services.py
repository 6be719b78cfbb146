"""Workspaces and keys are made, rotated and revoked within their tenant."""

from datetime import timedelta

import pytest
from django.core.exceptions import ValidationError
from django.utils import timezone

from chronos_site.tenancy import keys, services
from chronos_site.tenancy.models import ApiKey, Workspace


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["", "a b", "ü", "x" * 64, "a/b"])
def test_a_workspace_is_named_by_a_slug(name: str) -> None:
    with pytest.raises(ValidationError):
        services.create_workspace(name=name)


def test_a_workspace_name_is_taken_once(workspace: Workspace) -> None:
    with pytest.raises(ValidationError):
        services.create_workspace(name=workspace.name)


def test_only_the_hash_of_a_key_is_stored(workspace: Workspace) -> None:
    key, plaintext = services.create_api_key(workspace=workspace, name="k")
    stored = ApiKey.objects.filter(id=key.id).values().get()
    assert stored["key_hash"] == keys.hash_key(plaintext)
    assert plaintext not in str(stored)
    assert plaintext.startswith(stored["prefix"])


@pytest.mark.parametrize("scopes", [[], ["jobs:read", "jobs:erase"]])
def test_scopes_that_do_not_exist_are_refused(workspace: Workspace, scopes: list[str]) -> None:
    with pytest.raises(ValidationError):
        services.create_api_key(workspace=workspace, name="k", scopes=scopes)


def test_rotating_keeps_the_key_and_changes_its_secret(workspace: Workspace) -> None:
    key, old = services.create_api_key(workspace=workspace, name="k")
    rotated, new = services.rotate_api_key(workspace=workspace, key_id=key.id)
    assert (rotated.id, new != old) == (key.id, True)
    assert ApiKey.objects.get(id=key.id).key_hash == keys.hash_key(new)


def test_an_ended_key_is_not_rotated(workspace: Workspace) -> None:
    revoked, _ = services.create_api_key(workspace=workspace, name="revoked")
    services.revoke_api_key(workspace=workspace, key_id=revoked.id)
    past = timezone.now() - timedelta(seconds=1)
    expired, _ = services.create_api_key(workspace=workspace, name="expired", expires_at=past)
    for key, code in ((revoked, "key_revoked"), (expired, "key_expired")):
        with pytest.raises(services.KeyEndedError) as refused:
            services.rotate_api_key(workspace=workspace, key_id=key.id)
        assert refused.value.code == code


def test_revoking_again_keeps_the_first_time(workspace: Workspace) -> None:
    key, _ = services.create_api_key(workspace=workspace, name="k")
    services.revoke_api_key(workspace=workspace, key_id=key.id)
    first = ApiKey.objects.get(id=key.id).revoked_at
    services.revoke_api_key(workspace=workspace, key_id=key.id)
    assert ApiKey.objects.get(id=key.id).revoked_at == first is not None


def test_another_workspaces_key_does_not_exist(workspace: Workspace, other_workspace: Workspace) -> None:
    key, _ = services.create_api_key(workspace=workspace, name="k")
    with pytest.raises(ApiKey.DoesNotExist):
        services.revoke_api_key(workspace=other_workspace, key_id=key.id)
    with pytest.raises(ApiKey.DoesNotExist):
        services.rotate_api_key(workspace=other_workspace, key_id=key.id)
    assert ApiKey.objects.get(id=key.id).revoked_at is None
