"""Parts of messages of mfsdp-exec that commands look for. A test holds them to its sources: they change together."""

KILLED = "was ended by signal"  # a rank that was killed; the signal's number follows
FAULT = "fails, as requested"  # --fault fail
HANGS = ("has not ended while", "has been held", "no sign of life", "did not end")  # a rank that hangs
WINDOWS_ONE_HOST = "reaches the GPUs of one host"  # registered memory is refused between hosts, by mfsdp-exec
WINDOWS_NCCL = "NCCL does not use"  # or by NCCL
LAUNCHER = "started by"  # which launcher numbered the ranks
