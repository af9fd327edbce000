"""Advice as an edit: from what a fix asks of a call to a unified diff of the user's file. Text in, text out; no file is read or written."""
