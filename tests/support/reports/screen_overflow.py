"""Finds text that does not fit on the screen. Not a test."""

from __future__ import annotations

from rich.cells import cell_len

from rn50_advisor.advisor.tui.panels.panel import Panel


def overflows(app) -> list[str]:
    """Returns visible widgets that reach beyond the screen, and lines wider than their panel."""
    wide = [str(w) for w in app.screen.query("*") if w.is_on_screen and w.region.right > app.size.width]
    for panel in app.screen.query(Panel):
        width = panel.content_size.width
        if panel.is_on_screen and width:
            wide += [f"{panel} {line!r}" for line in panel.render().plain.split("\n") if cell_len(line) > width]
    return wide
