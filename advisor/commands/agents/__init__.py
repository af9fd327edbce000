"""`mcp`: offers runs and their verdicts to coding agents as tools of the Model Context Protocol."""
