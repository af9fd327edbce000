"""rn50-advisor: runs jobs, keeps runs, explains runs, shows runs.

The one name in site-packages: users have packages called `advisor`, `probes` or `rules`, too. The sources stay in the top-level folders
of the repository; here are relative links to them. Links, because every tool follows them without configuration: wheels get the files, an
editable install is one path in a .pth file, and mypy and import-linter see ordinary packages.
"""
