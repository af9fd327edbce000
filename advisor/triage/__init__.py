"""Is it the code or the box? Facts and short measurements of one machine, held against what such machines were measured to do elsewhere."""
