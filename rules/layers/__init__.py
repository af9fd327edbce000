"""Rules on how layers compute: attention in parts, number formats that the GPU only emulates."""
