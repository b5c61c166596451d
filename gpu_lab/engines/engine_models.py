"""The model as each engine shards or copies it: FSDP2, FSDP1, DDP, both versions of Megatron-FSDP, and DeepSpeed."""

import contextlib
import sys
from collections.abc import Callable
from typing import Any

from gpu_lab.engines.deepspeed_models import OPTIONS, deepspeed_engine
from gpu_lab.engines.llama import llama_classes, reset
from gpu_lab.engines.model_code import CODES, Options, prepare
from gpu_lab.machine import WrongFlag

Made = tuple[Any, Any, Callable[[bool], Any]]  # model, optimizer, context of a microbatch (whether it is the last)


def _mesh(options: Options, names: tuple[str, str]) -> Any:
    """One axis of all ranks or, in HSDP, an outer one and one that shards."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    world, outer = dist.get_world_size(), options.outer
    if options.alone:
        return init_device_mesh("cuda", (world, 1), mesh_dim_names=names)[names[1]]
    if outer == 1:
        return init_device_mesh("cuda", (world,), mesh_dim_names=names[1:])
    return init_device_mesh("cuda", (outer, world // outer), mesh_dim_names=names)


def _adamw(parameters: Any) -> Any:
    import torch
    return torch.optim.AdamW(parameters, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)


def _any_microbatch(_is_last: bool) -> Any:
    """For engines that do the same in each microbatch."""
    return contextlib.nullcontext()


def switches(options: Options, *names: str) -> dict[str, Any]:
    """The values of --engine-option NAME=X by name: numbers, and true or false. Raises WrongFlag for another name."""
    given = {}
    for option in options.engine_option:
        name, _, text = option.partition("=")
        if name not in names:
            raise WrongFlag(f"--engine-option: {options.engine} has {', '.join(names) or 'none'}, got {option}")
        given[name] = text == "true" if text in ("true", "false") else float(text)
    return given


def fsdp2(options: Options, config: dict[str, Any], device: Any, wire: Any) -> Made:
    """PyTorch FSDP2. `wire`: the dtype in which gradients are reduced."""
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    if options.strategy == "optim":
        sys.exit("--strategy optim: FSDP2 shards gradients")
    switches(options)
    if options.compile_loss and options.modules == "fused":
        raise WrongFlag("--compile-loss: expected --modules transformers or torchtitan")
    code = CODES[options.modules](options, config)
    prepare(code.blocks, options)
    ways = {"mesh": _mesh(options, ("outer", "shard")),
            "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=wire)}
    if options.strategy == "optim_grads":
        ways["reshard_after_forward"] = False
    if options.fsdp_unit == "block,ends":
        fully_shard(code.embedding, **ways)
    for block in code.blocks.children():
        fully_shard(block, **ways)
    if options.fsdp_unit == "block,ends":
        fully_shard(code.last, **{**ways, "reshard_after_forward": False})
    fully_shard(code.model, **ways)
    code.model.to_empty(device=device)
    code.reset(device)

    def microbatch(is_last: bool) -> Any:
        if options.accumulate_unsharded:
            code.model.set_requires_gradient_sync(is_last)
        return contextlib.nullcontext()

    return code.forward, _adamw(code.model.parameters()), microbatch


def _without_reduction(model: Any, defers: bool) -> Callable[[bool], Any]:
    """Contexts of microbatches, of which only the last one reduces."""
    return lambda is_last: model.no_sync() if defers and not is_last else contextlib.nullcontext()


def fsdp1(options: Options, config: dict[str, Any], device: Any, wire: Any) -> Made:
    """PyTorch's FullyShardedDataParallel, a unit for each block. `wire`: the dtype in which gradients are reduced."""
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy
    strategies = {"optim_grads_params": ShardingStrategy.FULL_SHARD, "optim_grads": ShardingStrategy.SHARD_GRAD_OP}
    if options.strategy not in strategies:
        sys.exit(f"--strategy {options.strategy}: FSDP1 has {' and '.join(strategies)}")
    given = switches(options, "limit_all_gathers", "forward_prefetch", "no_sync")
    defers = given.pop("no_sync", False)
    classes = llama_classes(options.fuse, options.untied)
    with torch.device("meta"):
        whole = classes.Llama(config)
    tied = whole.head.weight is whole.embedding.weight
    prepare(whole.layers, options)

    def make_empty(module: Any) -> None:
        module.to_empty(device=device, recurse=False)
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
        if tied and module is whole.head:
            module.weight = whole.embedding.weight

    model = FullyShardedDataParallel(
        whole, sharding_strategy=strategies[options.strategy], auto_wrap_policy=ModuleWrapPolicy({classes.Block}),
        mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=wire), device_id=device,
        param_init_fn=make_empty, use_orig_params=True, **given)
    return model, _adamw(model.parameters()), _without_reduction(model, defers)


def ddp(options: Options, config: dict[str, Any], device: Any, _wire: Any) -> Made:
    """PyTorch's DistributedDataParallel: fp32 weights under autocast to bf16."""
    import torch
    from torch.nn.parallel import DistributedDataParallel
    if options.strategy != "no_shard":
        sys.exit("--strategy: DDP has no_shard alone")
    given = switches(options, "bucket_cap_mb", "gradient_as_bucket_view", "no_sync")
    defers = given.pop("no_sync", False)
    with torch.device(device):
        model = llama_classes(options.fuse, options.untied).Llama(config)
    reset(model)
    prepare(model.layers, options)
    copied = DistributedDataParallel(model, device_ids=[device], **given)

    def forward(*inputs: Any) -> Any:
        with torch.autocast("cuda", torch.bfloat16):
            return copied(*inputs)

    return forward, _adamw(copied.parameters()), _without_reduction(copied, defers)


def megatron_fsdp_v1(options: Options, config: dict[str, Any], _device: Any, wire: Any) -> Made:
    """Megatron-FSDP, first version."""
    import torch
    import torch.distributed as dist
    from megatron_fsdp import MixedPrecisionPolicy, fully_shard_model, fully_shard_optimizer
    from torch.distributed.device_mesh import init_device_mesh
    world, outer = dist.get_world_size(), options.outer
    axes: dict[str, Any] = {"dp_shard_dim": "dp", "tp_dim": "tp"}
    if outer == 1:
        mesh = init_device_mesh("cuda", (world, 1), mesh_dim_names=("dp", "tp"))
    else:
        mesh = init_device_mesh("cuda", (outer, world // outer, 1), mesh_dim_names=("outer", "dp", "tp"))
        both = mesh[("outer", "dp")]._flatten("both")
        axes.update(dp_outer_dim="outer", hybrid_fsdp_group=both.get_group())
    classes = llama_classes(options.fuse, options.untied)
    with torch.device("meta"):
        model = classes.Llama(config).to(torch.bfloat16)
    prepare(model.layers, options)
    policy = MixedPrecisionPolicy(main_params_dtype=torch.float32, main_grads_dtype=wire, grad_comm_dtype=wire)
    model = fully_shard_model(module=model, fsdp_unit_modules=[classes.Block], device_mesh=mesh, **axes,
                              zero_dp_strategy=options.strategy, init_model_with_meta_device=True,
                              mixed_precision_policy=policy, fsdp_double_buffer=options.double_buffer,
                              sync_model_each_microbatch=True)
    return model, fully_shard_optimizer(optimizer=_adamw(model.parameters())), _any_microbatch


def megatron_fsdp_v2(options: Options, config: dict[str, Any], device: Any, wire: Any) -> Made:
    """Megatron-FSDP, second version (its `experimental` module)."""
    import torch
    from megatron_fsdp.experimental import (Placements, fully_shard, fully_shard_context,
                                            fully_shard_optimizer, microbatch)
    from megatron_fsdp.mixed_precision import MixedPrecisionPolicy
    from torch.distributed.tensor import Partial, Replicate, Shard
    mesh = _mesh(options, ("outer", "dp"))
    whole, sums, outer = options.strategy != "optim_grads_params", options.strategy == "optim", options.outer > 1
    places = Placements(dp_axes=list(mesh.mesh_dim_names),
                        parameter=[Replicate()] * outer + [Replicate() if whole else Shard(0)],
                        gradient=[Partial("avg")] * outer + [Partial("avg") if sums else Shard(0)],
                        optimizer=[Replicate()] * outer + [Shard(0)])
    policy = MixedPrecisionPolicy(main_params_dtype=torch.float32, main_grads_dtype=wire, grad_comm_dtype=wire)
    with torch.device("meta"):
        model = llama_classes(options.fuse, options.untied).Llama(config).to(torch.bfloat16)
    prepare(model.layers, options)
    with fully_shard_context(device) as context:
        for layer in model.layers:
            layer.to_empty(device=device)
            reset(layer)
            fully_shard(layer, mesh, places, policy)
        tied = model.head.weight is model.embedding.weight
        for module in (model.embedding, model.norm, model.head):
            module.to_empty(device=device)
            module.reset_parameters()
        if tied:
            model.head.weight = model.embedding.weight
        fully_shard(model, mesh, places, policy)
    optimizer = _adamw(list(model.parameters()))
    fully_shard_optimizer(optimizer)
    return model, optimizer, lambda is_last: microbatch(context, is_last)


def deepspeed(options: Options, config: dict[str, Any], device: Any, _wire: Any) -> Made:
    """DeepSpeed's ZeRO-1, ZeRO-2 or ZeRO-3, by the engine's name."""
    return deepspeed_engine(options, config, device, switches(options, *OPTIONS), _adamw)


ENGINES = {"fsdp2": fsdp2, "fsdp1": fsdp1, "ddp": ddp, "megatron-fsdp-v1": megatron_fsdp_v1, "megatron-fsdp-v2": megatron_fsdp_v2,
           "deepspeed-zero1": deepspeed, "deepspeed-zero2": deepspeed, "deepspeed-zero3": deepspeed}
