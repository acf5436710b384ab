from __future__ import annotations

from itertools import product

import pytest

from crlearn.report._facets import Axis, arrange, independent_axes, row_label


def grid(**axes) -> list[dict]:
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


def test_a_full_grid_has_the_axis_with_most_values():
    panels, others = arrange(grid(n_latents=[5, 8], n_samples=[10000, 5000, 50000]))
    assert others == []
    assert [panel.axis.name for panel in panels] == ["n_samples", "n_samples"]
    assert [panel.fixed for panel in panels] == [{"n_latents": 5}, {"n_latents": 8}]
    assert panels[0].axis.values == (5000, 10000, 50000)
    assert [s["n_samples"] for s in panels[0].settings] == [5000, 10000, 50000]
    assert panels[1].title.replace("\N{NO-BREAK SPACE}", " ") == "n_latents = 8"


def test_a_title_has_what_is_given():
    panels, _ = arrange(grid(n_samples=[10, 20], domains=[None, 4]))
    titles = [panel.title.replace("\N{NO-BREAK SPACE}", " ") for panel in panels]
    assert titles == ["", "domains = 4"]


def test_numbers_come_before_kinds_and_samples_before_other_numbers():
    settings = grid(graph=["er", "chain", "y"], n_latents=[5, 8], n_samples=[10, 20])
    assert [axis.name for axis in independent_axes(settings)] == ["n_samples", "n_latents", "graph"]


def test_one_thing_at_a_time_gives_one_panel_for_each_thing():
    base = {"n_latents": 10, "delta": 0, "active": "half"}
    settings = [
        base,
        *({**base, "n_latents": n} for n in (5, 20)),
        *({**base, "delta": d} for d in (1, 2, 3)),
        {**base, "active": "one"},
    ]
    panels, others = arrange(settings)
    assert others == []
    assert {panel.axis.name: len(panel.settings) for panel in panels} == {
        "delta": 4,
        "n_latents": 3,
        "active": 2,
    }


def test_settings_that_differ_in_several_things_are_left_to_rows():
    settings = [
        {"n_latents": 4, "graph": "er", "n_samples": 10},
        {"n_latents": 5, "graph": "er", "n_samples": 10},
        {"n_latents": 4, "graph": "chain", "n_samples": 20},
        {"n_latents": 9, "graph": "y", "n_samples": 20},
    ]
    panels, others = arrange(settings)
    assert [panel.axis.name for panel in panels] == ["n_latents"]
    assert others == settings[2:]


@pytest.mark.parametrize("settings", [[{}], [], grid(graph=["er", "y"], mechanism=["sin", "mlp"])])
def test_without_numbers_there_are_only_rows(settings):
    assert arrange(settings) == ([], settings)


def test_a_parameter_that_goes_along_with_another_is_no_axis():
    settings = [{"n_latents": n, "n_features": n, "noise": n > 4} for n in (4, 5, 6)]
    (axis,) = independent_axes(settings)
    assert axis.name == "n_latents"
    assert axis.followers == ("n_features", "noise")
    assert axis.label == "n_latents (with n_features, noise)"
    (panel,), _ = arrange(settings[1:])
    assert panel.axis.followers == ["n_features"]


def test_a_number_that_goes_along_with_a_kind_is_not_drawn_as_a_scale():
    settings = [{"mechanism": "linear", "n_samples": 10}, {"mechanism": "mlp", "n_samples": 99}]
    (axis,) = independent_axes([{**s, "n_latents": 3} for s in settings])
    assert (axis.name, axis.followers) == ("mechanism", ("n_samples",))


def test_lists_as_values():
    settings = grid(n_samples=[10, 20], factors=[[0.25, 4.0], [0.25]])
    panels, others = arrange(settings)
    assert len(panels) == 2
    assert others == []
    assert row_label(settings[0], independent_axes(settings)) == "10, [0.25, 4.0]"


def test_scale_of_an_axis():
    wide, narrow = Axis("n_samples", (100, 1000, 10000)), Axis("n_latents", (5, 8))
    assert wide.is_logarithmic
    assert wide.label == "n_samples, log scale"
    assert wide.position(1000) == pytest.approx(3)
    assert not narrow.is_logarithmic
    assert narrow.position(8) == 8
    assert not Axis("delta", (0, 100)).is_logarithmic
    assert Axis("graph", ("er", "y")).position("y") == 1
    assert not Axis("switch", (True, False)).is_numeric
