"""Other engines (FSDP2, Megatron-FSDP): recorded, run, predicted and scored."""
