"""Input pipelines of different kinds, to hold the forecast over worker counts against what other counts really give."""
