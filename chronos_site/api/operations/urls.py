from django.urls import path

from chronos_site.api.operations import views

urlpatterns = [
    path("operations", views.OperationList.as_view()),
    path("operations/<uuid:operation_id>", views.OperationDetail.as_view()),
    path("operations/<uuid:operation_id>/abort", views.OperationAbort.as_view()),
]
