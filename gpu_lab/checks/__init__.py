"""Checks of mfsdp-exec on GPUs: bits, delays, killed ranks, saves, memory, launchers."""
