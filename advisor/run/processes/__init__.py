"""The processes of the job: who they are, and how they ended."""
