"""The steps: which count, where their time goes, when they change."""
