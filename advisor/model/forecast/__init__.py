"""The step model and the worker model, the only source of predicted speed-ups."""
