"""django-unfold: how the admin looks. What it shows is `chronos_site.console.navigation`'s."""

from typing import Any

from django.templatetags.static import static

LABELS = ("info", "success", "warning", "danger")


def theme(*, environment: str, colour: str) -> dict[str, Any]:
    """The setting UNFOLD. `environment` is shown beside the name of who is logged in, empty for nothing."""
    return {
        "SITE_TITLE": "Chronos",
        "SITE_HEADER": "Chronos",
        "SITE_SUBHEADER": "Jobs at their second",
        "SITE_SYMBOL": "schedule",
        "SITE_URL": None,
        "SHOW_VIEW_ON_SITE": False,
        "ENVIRONMENT": [environment, colour] if environment else None,
        "ENVIRONMENT_TITLE_PREFIX": f"[{environment}]" if environment else None,
        "BORDER_RADIUS": "6px",
        "STYLES": [lambda _request: static("console/console.css")],
        "COLORS": {"primary": PRIMARY},
        "SIDEBAR": {
            "show_search": True,
            "show_all_applications": False,
            "navigation": "chronos_site.console.navigation.sidebar",
        },
    }


# A blue that reads on white and on near-black alike.
PRIMARY = {
    "50": "oklch(97% .014 254.6)",
    "100": "oklch(93.2% .032 255.6)",
    "200": "oklch(88.2% .059 254.1)",
    "300": "oklch(80.9% .105 251.8)",
    "400": "oklch(70.7% .165 254.6)",
    "500": "oklch(62.3% .214 259.8)",
    "600": "oklch(54.6% .245 262.9)",
    "700": "oklch(48.8% .243 264.4)",
    "800": "oklch(42.4% .199 265.6)",
    "900": "oklch(37.9% .146 265.5)",
    "950": "oklch(28.2% .091 267.9)",
}
