"""Llama-3-8B and more on all GPUs of one host, in calls of less than ten minutes."""
