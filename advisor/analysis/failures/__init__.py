"""Why a job failed or stood still."""
