"""PyTorch, transformers and PEFT beside mfsdp-exec: gradients, training, speed, weights."""
