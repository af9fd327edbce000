"""Shows one `Report` as text, JSON, Markdown or HTML. Computes nothing new."""
