"""Selects the steps that count, attributes their time and finds when they change."""
