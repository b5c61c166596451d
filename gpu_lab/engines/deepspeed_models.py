"""The plain Llama under DeepSpeed's ZeRO-1 to 3, in bf16 with PyTorch's fused AdamW. DeepSpeed is on PYTHONPATH."""

import os
from collections.abc import Callable
from typing import Any

from gpu_lab.engines.llama import llama_classes, reset
from gpu_lab.engines.model_code import Options, prepare

OPTIONS = ("reduce_bucket_size", "overlap_comm", "contiguous_gradients", "sub_group_size", "stage3_prefetch_bucket_size",
           "stage3_max_live_parameters", "stage3_max_reuse_distance", "stage3_param_persistence_threshold")


class Loss:
    """A microbatch's loss, whose backward is DeepSpeed's."""

    def __init__(self, engine: Any, loss: Any, is_last: bool) -> None:
        self.engine, self.loss, self.is_last = engine, loss, is_last

    def backward(self) -> None:
        """Backward, and DeepSpeed's count of microbatches."""
        self.engine.backward(self.loss)
        if not self.is_last:
            self.engine.step()


class Optimizer:
    """DeepSpeed's engine as an optimizer."""

    def __init__(self, engine: Any) -> None:
        self.engine, self.param_groups = engine, engine.optimizer.param_groups

    def step(self) -> None:
        """Updates the weights, after the last microbatch."""
        self.engine.step()

    def zero_grad(self) -> None:
        """Nothing: the engine has done so."""


def _model(options: Options, config: dict[str, Any], device: Any, settings: dict[str, Any]) -> Any:
    """The model in bf16: whole on every rank or, for stage 3, sharded as its modules are made."""
    import deepspeed
    import torch
    make = llama_classes(False, options.untied).Llama
    if settings["zero_optimization"]["stage"] == 3:
        with deepspeed.zero.Init(config_dict_or_path=settings, dtype=torch.bfloat16):
            return make(config)
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):
        model = make(config)
    torch.set_default_dtype(default)
    reset(model)
    return model


def deepspeed_engine(options: Options, config: dict[str, Any], device: Any, given: dict[str, Any],
                     adamw: Callable[[Any], Any]) -> tuple[Any, Any, Callable[[bool], Any]]:
    """Model, optimizer and context of a microbatch, as engine_models.Made. `given`: values of OPTIONS."""
    import contextlib
    os.environ["DS_ACCELERATOR"] = "cuda"
    import deepspeed
    whole = {name: value if isinstance(value, bool) else int(value) for name, value in given.items()}
    settings = {"train_micro_batch_size_per_gpu": options.micro_batch, "gradient_accumulation_steps": options.microbatches,
                "bf16": {"enabled": True}, "steps_per_print": 10**9,
                "zero_optimization": {"stage": int(options.engine[-1]), **whole}}
    model = _model(options, config, device, settings)
    prepare(model.layers, options)
    engine, *_ = deepspeed.initialize(model=model, optimizer=adamw(model.parameters()), config=settings,
                                      dist_init_required=False)
    last = [True]

    def microbatch(is_last: bool) -> Any:
        last[0] = is_last
        return contextlib.nullcontext()

    return lambda *inputs: Loss(engine, engine(*inputs), last[0]), Optimizer(engine), microbatch
