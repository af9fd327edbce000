"""Turns a fix's request for a call into a unified diff of the user's file. Text in, text out; no file is read or written."""
