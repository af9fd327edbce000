"""Programs that measure with the libraries of whoever trains: run by path in that interpreter, they import nothing of the advisor's."""
