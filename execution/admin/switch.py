"""What operators have switched off; to be read here, and turned by `manage.py chronos switch`."""

from django.contrib import admin
from django.http import HttpRequest
from unfold.admin import ModelAdmin

from execution.models import DispatchSwitch


@admin.register(DispatchSwitch)
class DispatchSwitchAdmin(ModelAdmin):
    list_display = ("scope", "value", "at", "set_by", "reason")
    list_filter = ("scope",)
    search_fields = ("value", "reason")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: DispatchSwitch | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: DispatchSwitch | None = None) -> bool:
        return False
