"""Every path of the site. What is under /v1 and matches nothing is a problem+json, too."""

from django.contrib import admin
from django.urls import include, path, re_path
from drf_spectacular.views import SpectacularSwaggerSplitView

from chronos_site.api import views as api
from chronos_site.console import dashboard, health, metrics

_swagger = SpectacularSwaggerSplitView.as_view(
    url_name="openapi", authentication_classes=[], permission_classes=[], throttle_classes=[]
)

urlpatterns = [
    path("admin/dashboard.json", dashboard.data, name="dashboard-json"),
    path("admin/", admin.site.urls),
    path("healthz", health.healthz),
    path("readyz", health.readyz),
    path("metrics", metrics.page),
    path("v1/openapi.json", api.openapi_json, name="openapi"),
    path("v1/docs", _swagger),
    path("v1/", include("chronos_site.api.operations.urls")),
    path("v1/", include("chronos_site.tenancy.api.urls")),
    path("v1/", include("execution.api.urls")),
    path("v1/", include("scheduling.api.urls")),
    path("v1/", include("bulk.api.urls")),
    re_path(r"^v1(?:/.*)?$", api.unmatched),
]

handler400 = api.handle_400
handler500 = api.handle_500
