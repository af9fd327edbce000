"""The last line of the screen: keys and their words, which a click presses too."""

from __future__ import annotations

from collections.abc import Iterator

from textual import events
from textual.binding import Binding
from textual.content import Content
from textual.screen import Screen
from textual.style import Style
from textual.widget import Widget

from rn50_advisor.advisor.tui.styles.drawing import harmless, line


# Not Textual's Footer, which makes a widget of each key anew whenever the focus moves: half of the time that a change of view took.
class KeyBar(Widget):
    ALLOW_SELECT = False

    def __init__(self, *, id: str | None = None, palette: bool = True) -> None:
        super().__init__(id=id)
        self._palette = palette

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._bindings_changed)

    def _bindings_changed(self, screen: Screen[object]) -> None:
        if screen is self.screen:
            self.refresh()

    def render(self) -> Content:
        keys = line(*(self._key(binding) for binding in self._shown()))
        palette = self.screen.active_bindings.get(self.app.COMMAND_PALETTE_BINDING) if self._palette else None
        if palette is None:
            return keys
        right = line(("▏", "$foreground 20%"), self._key(palette.binding, before=""))
        room = max(self.size.width - right.cell_length, 0)
        kept = keys.truncate(room)
        return line(kept, " " * (room - kept.cell_length), right)

    def _shown(self) -> Iterator[Binding]:
        """The bindings for the footer, one for each action."""
        seen = set()
        for active in self.screen.active_bindings.values():
            binding = active.binding
            if binding.show and active.enabled and binding.action not in seen:
                seen.add(binding.action)
                yield binding

    def _key(self, binding: Binding, before: str = " ") -> Content:
        text = line(
            (f"{before}{self.app.get_key_display(binding)} ", "bold $footer-key-foreground"),
            (f"{harmless(binding.description)} ", "$footer-description-foreground"),
        )
        return text.stylize(Style.from_meta({"key": binding.key}))

    def on_mouse_down(self, event: events.MouseDown) -> None:
        key = event.style.meta.get("key")
        if isinstance(key, str):
            self.app.simulate_key(key)
