"""What the process of a trial does before it becomes the job: it cuts itself off from the user's files."""
