"""Input pipelines of different kinds, to check the forecast over worker counts against runs with other counts."""
