"""The admin's pages, all of them: under the theme, in the sidebar, and open."""

import pytest
from django.contrib import admin
from django.db.models import Model
from django.test import Client
from django_celery_beat.models import IntervalSchedule, PeriodicTask
from unfold.admin import ModelAdmin

MODELS = sorted(admin.site._registry, key=lambda model: model._meta.label_lower)


def path_of(model: type[Model]) -> str:
    return f"/admin/{model._meta.app_label}/{model._meta.model_name}/"


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model._meta.label_lower)
def test_every_page_is_in_the_themes_dress_and_opens(model: type[Model], admin_client: Client) -> None:
    page = admin.site._registry[model]
    assert isinstance(page, ModelAdmin), "register it with a class of unfold.admin.ModelAdmin"
    assert admin_client.get(path_of(model)).status_code == 200
    assert admin_client.get(path_of(model) + "?q=a").status_code == 200
    assert admin_client.get(path_of(model) + "add/").status_code in (200, 403)


def test_the_first_page_and_the_sidebar_lead_to_every_list_that_a_person_may_see(admin_client: Client) -> None:
    text = admin_client.get("/admin/").content.decode()
    assert "<title" in text
    assert "Chronos" in text
    missing = [
        path_of(model)
        for model in MODELS
        if path_of(model) not in text and model._meta.app_label != "django_celery_beat"
    ]
    assert missing == []


def test_a_periodic_task_can_be_read_and_kept(admin_client: Client) -> None:
    every = IntervalSchedule.objects.create(every=1, period=IntervalSchedule.SECONDS)
    task = PeriodicTask.objects.create(name="t", task="some.task", interval=every)
    path = f"{path_of(PeriodicTask)}{task.pk}/change/"
    assert admin_client.get(path).status_code == 200
    form = {"name": "renamed", "regtask": "", "task": "some.task", "interval": str(every.pk), "args": "[]"}
    answer = admin_client.post(path, {**form, "kwargs": "{}", "headers": "{}"})
    assert answer.status_code == 302, answer.content.decode()[-3000:]
    task.refresh_from_db()
    assert task.name == "renamed"
    assert admin_client.get(f"{path_of(IntervalSchedule)}{every.pk}/change/").status_code == 200


def test_strangers_are_sent_to_the_login(client: Client, db: None) -> None:
    answer = client.get("/admin/")
    assert (answer.status_code, answer.headers["Location"]) == (302, "/admin/login/?next=/admin/")
    assert client.get("/admin/login/").status_code == 200
