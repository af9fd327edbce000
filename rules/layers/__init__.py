"""Rules on how layers compute: attention in parts, emulated number formats, dense gradients of tables, gradients that are thrown away."""
