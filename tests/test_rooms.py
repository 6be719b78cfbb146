"""What import-linter cannot see: relations between models, and the size of files."""

from pathlib import Path

from django.apps import apps

ROOT = Path(__file__).resolve().parents[1]
LAYERS = ["api", "tenancy", "execution", "scheduling", "bulk"]
"""Apps with models of ours, the lowest room first; the last two are side by side (import-linter keeps them apart)."""
LONGEST_FILE = 400


def test_no_model_relation_points_from_a_lower_room_to_a_higher_one() -> None:
    seen = 0
    for model in apps.get_models():
        if model._meta.app_label not in LAYERS:
            continue
        for field in model._meta.get_fields():
            related = field.related_model
            if field.auto_created or not isinstance(related, type) or related._meta.app_label not in LAYERS:
                continue
            seen += 1
            here, there = LAYERS.index(model._meta.app_label), LAYERS.index(related._meta.app_label)
            assert there <= here, f"{model.__name__}.{field.name} points up to {related.__name__}"
    assert seen > 0


def test_every_app_with_models_has_its_place_among_the_rooms() -> None:
    ours = {
        config.label
        for config in apps.get_app_configs()
        if Path(config.path).is_relative_to(ROOT) and "site-packages" not in Path(config.path).parts
    }
    with_models = {model._meta.app_label for model in apps.get_models()} & ours
    assert with_models == set(LAYERS)


def test_no_source_file_is_longer_than_one_room() -> None:
    for folder in ("chronos_site", "execution", "scheduling", "bulk"):
        for path in (ROOT / folder).rglob("*.py"):
            assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST_FILE, path
