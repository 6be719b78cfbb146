from django.urls import path

from chronos_site.tenancy.api import views

urlpatterns = [
    path("workspace", views.WorkspaceDetail.as_view()),
    path("api-keys", views.ApiKeyList.as_view()),
    path("api-keys/<uuid:key_id>", views.ApiKeyDetail.as_view()),
    path("api-keys/<uuid:key_id>/rotate", views.ApiKeyRotate.as_view()),
]
