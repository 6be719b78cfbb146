from django.views import View
from rest_framework.exceptions import PermissionDenied
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from chronos_site.tenancy.authentication import calling_key


class HasScope(BasePermission):
    """The key must hold the scope that the view's `required_scopes` names for the method; without one it is closed."""

    def has_permission(self, request: Request, view: View) -> bool:
        method = "GET" if request.method == "HEAD" else request.method or ""
        if not hasattr(view, method.lower()) or method == "OPTIONS":
            return True  # Nothing would run: the view answers 405.
        scope = getattr(view, "required_scopes", {}).get(method)
        if scope is None:
            return False
        if request.auth is None or scope not in calling_key(request).scopes:
            raise PermissionDenied(f"This API key lacks the scope {scope}.", "missing_scope")
        return True
