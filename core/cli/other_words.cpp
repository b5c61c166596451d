#include "core/cli/other_words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/base/text.hpp"

namespace mfsdp {
namespace {

/// Words separated by spaces, in lower case, with "-" inside a word and without leading dashes.
using WordList = std::string_view;

struct NotModelled {
  std::string_view what;  ///< with its verb
  WordList words;
};

constexpr std::array kNotModelled{
    NotModelled{.what = "tensor parallelism of experts is",
                .words = "etp etp-size expert-tensor-parallel expert-tensor-parallel-size"},
    NotModelled{.what = "groups of ranks for experts alone are",
                .words = "expert-outer-dp expert-outer-strategy"},
    NotModelled{.what = "another order of ranks than tp, cp, dp, from neighbours on, is",
                .words = "mesh-order rank-order use-tp-pp-dp-mapping"},
    NotModelled{.what = "MXFP4 and integers are",
                .words = "mxfp4 int8 int4 load-in-8bit load-in-4bit quantize quantization"},
    NotModelled{.what = "offloading is",
                .words = "cpu-offload offload optimizer-offload offload-optimizer "
                         "optimizer-cpu-offload activation-offload cpu-offloading offload-params "
                         "param-offload nvme-offload"}};

/// A flag of these tools that means the same as the words of other tools.
struct Meaning {
  std::string_view flag;
  std::string_view how;                 ///< how to write its value
  std::string_view tool = "mfsdp-sim";  ///< a tool that has the flag
  WordList words;
};

constexpr std::string_view kExec = "mfsdp-exec";

constexpr std::array kMeanings{
    Meaning{.flag = "--fp8",
            .how = "current: FP8 with a scale for each tensor",
            .words = "fp8-format fp8-recipe float8 fp8-training enable-fp8"},
    Meaning{.flag = "--fp8",
            .how = "mxfp8 or nvfp4: a scale for each block",
            .words = "mxfp8 nvfp4 fp4 fp4-format fp4-recipe"},
    Meaning{.flag = "--fp8-history",
            .how = "with --fp8 delayed: steps of the history",
            .words = "fp8-amax-history-len amax-history-len"},
    Meaning{.flag = "--fp8-amax",
            .how = "with --fp8 delayed: max or most_recent",
            .words = "fp8-amax-compute-algo amax-compute-algo"},
    Meaning{.flag = "--fp8-keep-bf16",
            .how = "first blocks, and as many last ones, in bf16",
            .words = "first-last-layers-bf16 num-layers-at-start-in-bf16 "
                     "num-layers-at-end-in-bf16"},
    Meaning{.flag = "--micro-batch",
            .how = "sequences per GPU and microbatch",
            .words = "mbs microbatch microbatch-size micro-batch-size per-device-batch-size "
                     "per-device-train-batch-size per-gpu-batch-size batch-size-per-gpu "
                     "local-batch-size device-batch-size train-micro-batch-size-per-gpu"},
    Meaning{.flag = "--global-batch",
            .how = "sequences of one step on all GPUs",
            .words = "gbs global-batch-size train-batch-size total-batch-size "
                     "effective-batch-size"},
    Meaning{.flag = "--global-batch",
            .how = "sequences of one step on all GPUs: accumulation steps x --micro-batch x GPUs",
            .words = "grad-accum grad-accum-steps grad-accumulation gradient-accumulation "
                     "gradient-accumulation-steps accumulate-grad-batches accumulation-steps "
                     "microbatches num-microbatches"},
    Meaning{.flag = "--micro-batch",
            .how = "sequences per GPU and microbatch; --global-batch: of one step on all GPUs",
            .words = "batch-size batch bs"},
    Meaning{.flag = "--seq-len",
            .how = "tokens of a sequence",
            .words = "seq seqlen seq-length sequence-length max-seq-len max-seq-length "
                     "max-sequence-length max-length context-length ctx-len block-size cutoff-len "
                     "max-position-embeddings"},
    Meaning{.flag = "--gpus",
            .how = "GPUs of all nodes: nodes x --gpus-per-node",
            .words = "nodes num-nodes nnodes n-nodes"},
    Meaning{.flag = "--gpus",
            .how = "GPUs of all nodes",
            .words = "ngpus n-gpus num-gpus gpu-count devices num-devices num-processes nproc"},
    Meaning{.flag = "--gpus",
            .how = "each GPU is data-parallel; --outer-dp: groups of replicas",
            .words = "dp dp-size data-parallel data-parallel-size data-parallel-degree"},
    Meaning{.flag = "--outer-dp",
            .how = "groups of GPUs, each with all shards",
            .words = "replicas num-replicas dp-replicate dp-replicate-size "
                     "data-parallel-replicate-degree num-distributed-optimizer-instances"},
    Meaning{.flag = "--gpus-per-node",
            .how = "GPUs in one node",
            .words = "nproc-per-node n-gpus-per-node ntasks-per-node gpus-per-machine node-size"},
    Meaning{.flag = "--gpu",
            .how = "a GPU of the catalogue, or a TOML file",
            .words = "gpu-type gpu-name gpu-model device accelerator hardware"},
    Meaning{.flag = "--recompute",
            .how = "none, selective, full or full:K",
            .words = "activation-checkpointing activation-checkpoint gradient-checkpointing ac "
                     "checkpoint-activations recompute-activations recompute-granularity "
                     "recompute-method recomputation remat enable-gradient-checkpointing"},
    Meaning{.flag = "--param-dtype",
            .how = "of compute weights; --main-dtype, --grad-dtype, --reduce-dtype and "
                   "--state-dtype: of the rest",
            .words = "dtype precision mixed-precision torch-dtype data-type amp bf16 fp16 "
                     "mixed-precision-param"},
    Meaning{.flag = "--reduce-dtype",
            .how = "of gradients while they are reduced",
            .words = "mixed-precision-reduce grad-reduce-dtype grad-reduce-in-bf16 "
                     "communication-dtype"},
    Meaning{.flag = "--strategy",
            .how = "such as zero3",
            .words = "zero zero-stage zero-optimization sharding sharding-strategy "
                     "data-parallel-sharding-strategy fsdp"},
    Meaning{.flag = "--optimizer",
            .how = "adamw, sgd, muon, ...",
            .words = "optim optimizer-name optimizer-type"},
    Meaning{.flag = "--clip",
            .how = "largest norm of the gradients; 0 for none",
            .words = "max-grad-norm clip-grad clip-grad-norm grad-clip gradient-clipping "
                     "gradient-clip-val max-norm"},
    Meaning{.flag = "--ep",
            .how = "ranks that share the experts, such as --ep 8; docs/guide/experts.md",
            .words = "ep-size expert-parallel expert-parallel-size expert-parallel-degree "
                     "expert-model-parallel-size enable-expert-parallel"},
    Meaning{.flag = "--cp",
            .how = "ranks that share each sequence, such as --cp 4; docs/guide/parallel.md",
            .words = "cp-size context-parallel context-parallel-size context-parallel-degree "
                     "ulysses ulysses-size ulysses-sequence-parallel-size"},
    Meaning{
        .flag = "--cp-comm",
        .how = "a2a, which is Ulysses, all_gather, which gathers keys and values, or p2p, a ring",
        .words = "cp-comm-type context-parallel-comm-type ring-attention"},
    Meaning{.flag = "--tp",
            .how = "ranks that share each block's weights, with sequence parallelism, such as --tp "
                   "8; docs/guide/tensor_parallel.md",
            .words = "tp-size tensor-parallel tensor-parallel-size tensor-parallel-degree "
                     "tensor-model-parallel-size sp sequence-parallel sequence-parallel-size"},
    Meaning{.flag = "--pp",
            .how = "stages of a pipeline, such as --pp 4; docs/guide/pipelines.md",
            .words = "pp pp-size pipeline-parallel pipeline-parallel-size pipeline-parallel-degree "
                     "pipeline-model-parallel-size num-stages pipeline-stages"},
    Meaning{.flag = "--schedule",
            .how = "1f1b or gpipe; docs/guide/pipelines.md",
            .words = "pipeline-parallel-schedule pipeline-schedule"},
    Meaning{.flag = "--vpp",
            .how = "chunks of each stage, with --schedule interleaved; docs/guide/pipelines.md",
            .words = "virtual-pipeline-model-parallel-size num-virtual-stages-per-pipeline-rank"},
    Meaning{.flag = "--capacity-factor",
            .how = "beside --ep; no row is dropped; docs/guide/experts.md",
            .words = "moe-expert-capacity-factor expert-capacity-factor moe-capacity-factor"},
    Meaning{.flag = "--base-dtype",
            .how = "--lora-rank N --base-dtype nf4, predicted only; docs/guide/lora.md",
            .words = "qlora load-in-4bit bnb-4bit-quant-type"},
    Meaning{.flag = "--lora-rank",
            .how = "such as --lora-rank 16; docs/guide/lora.md",
            .words = "lora lora-r lora-dim peft adapters"},
    Meaning{.flag = "--model",
            .how = "a built-in name, a config.json or its folder",
            .words = "model-name model-path model-name-or-path hf-model pretrained-model "
                     "model-config hf-config"},
    Meaning{.flag = "--engine",
            .how = "mfsdp, fsdp2, fsdp2-compile, mcore, ...",
            .words = "engine framework trainer backend-engine"},
    Meaning{.flag = "--tokens",
            .how = "tokens of the whole training, such as 2T",
            .words = "tokens num-tokens train-tokens total-tokens token-budget"},
    Meaning{
        .flag = "--price",
        .how = "of an hour of one GPU",
        .words = "price cost price-per-hour price-per-gpu-hour gpu-price gpu-cost cost-per-hour"},
    Meaning{.flag = "--find",
            .how = "fastest, cheapest, max-seq-len, ...",
            .words = "find search tune autotune optimize best"},
    Meaning{.flag = "--routing",
            .how = "what routers choose, which changes no plan; docs/guide/experts.md",
            .words = "routing moe-routing"},
    Meaning{.flag = "--lr",
            .how = "learning rate",
            .tool = kExec,
            .words = "lr learning-rate learningrate"},
    Meaning{.flag = "--steps",
            .how = "steps of the training",
            .tool = kExec,
            .words = "steps max-steps train-iters num-steps training-steps total-steps iterations "
                     "iters max-iters"},
    Meaning{.flag = "--warmup",
            .how = "steps until the learning rate is whole",
            .tool = kExec,
            .words = "warmup warmup-steps lr-warmup-iters lr-warmup-steps num-warmup-steps"},
    Meaning{.flag = "--data",
            .how = "text or tokens to train with",
            .tool = kExec,
            .words = "data dataset data-path dataset-path train-data train-file training-data"},
    Meaning{
        .flag = "--save",
        .how = "folder of saves",
        .tool = kExec,
        .words = "save output-dir save-dir save-path checkpoint-dir checkpoint-folder ckpt-dir"},
    Meaning{.flag = "--save-every",
            .how = "steps between saves",
            .tool = kExec,
            .words = "save-every save-steps save-interval save-freq checkpoint-interval"},
    Meaning{.flag = "--resume",
            .how = "a save, or auto",
            .tool = kExec,
            .words = "resume load load-checkpoint resume-from resume-from-checkpoint"}};

/// A value of these tools that means the same as the words of other tools.
struct ValueMeaning {
  std::string_view flag;
  std::string_view what;
  WordList words;
};

constexpr std::array kValueMeanings{
    ValueMeaning{.flag = "--engine",
                 .what = "torchtitan trains with PyTorch FSDP2 and compiled blocks: fsdp2-compile",
                 .words = "torchtitan titan"},
    ValueMeaning{.flag = "--engine",
                 .what = "it trains with PyTorch's own FSDP2: fsdp2, or fsdp2-compile where blocks "
                         "are compiled",
                 .words = "fsdp pytorch torch pytorch-fsdp2 torchtune accelerate huggingface "
                          "transformers trainer verl"},
    ValueMeaning{.flag = "--engine",
                 .what = "Megatron-FSDP is megatron-fsdp-v1 or megatron-fsdp-v2; Megatron-Core's "
                         "distributed optimizer is mcore",
                 .words = "megatron megatron-lm megatron-fsdp megatron-core nemo "
                          "megatron-bridge"},
    ValueMeaning{
        .flag = "--engine",
        .what = "DeepSpeed's stages are deepspeed-zero1, deepspeed-zero2 and deepspeed-zero3",
        .words = "deepspeed zero zero1 zero2 zero3"},
    ValueMeaning{.flag = "--optimizer",
                 .what = "AdamW with states of 8 bits is adamw with --state-dtype blockwise8",
                 .words = "adamw8bit adamw-8bit adamw-bnb-8bit adam8bit paged-adamw-8bit "
                          "adamw-int8 8bit-adam"},
    ValueMeaning{.flag = "--optimizer",
                 .what = "AdamW, fused as all optimizers are here, is adamw",
                 .words = "adamw-torch adamw-torch-fused adamw-fused fused-adamw"},
    ValueMeaning{.flag = "--recompute",
                 .what = "full recomputes whole blocks, selective their norms and activations",
                 .words = "true on yes 1 all block uniform"},
    ValueMeaning{.flag = "--recompute",
                 .what = "PyTorch's recomputation per operator (selective activation "
                         "checkpointing of torchtitan) is not modelled yet",
                 .words = "op sac per-op"},
    ValueMeaning{
        .flag = "--recompute", .what = "none recomputes nothing", .words = "false off no 0"},
    ValueMeaning{
        .flag = "--param-dtype", .what = "here it is bf16", .words = "bfloat16 torch.bfloat16"},
    ValueMeaning{
        .flag = "--param-dtype", .what = "here it is fp16", .words = "float16 half torch.float16"},
    ValueMeaning{.flag = "--param-dtype",
                 .what = "here it is fp32",
                 .words = "float32 float torch.float32"}};

bool holds(WordList words, std::string_view word) {
  for (std::size_t begin = 0; begin < words.size();) {
    const std::size_t end = std::min(words.find(' ', begin), words.size());
    if (words.substr(begin, end - begin) == word) return true;
    begin = end + 1;
  }
  return false;
}

/// "--Tensor_Parallel" -> "tensor-parallel"
std::string word_of(std::string_view flag) {
  std::string word = lower_case(flag.substr(std::min(flag.find_first_not_of('-'), flag.size())));
  std::ranges::replace(word, '_', '-');
  return word;
}

bool has(std::span<const std::string> known, std::string_view flag) {
  return std::ranges::find(known, flag) != known.end();
}

/// All flags that take a dtype share one entry.
std::string_view flag_of_values(std::string_view flag) {
  const bool of_dtypes =
      flag == "--main-dtype" || flag == "--grad-dtype" || flag == "--reduce-dtype";
  return of_dtypes ? "--param-dtype" : flag;
}

}  // namespace

std::optional<std::string> about_foreign_flag(std::string_view flag,
                                              std::span<const std::string> known) {
  const std::string word = word_of(flag);
  for (const NotModelled& one : kNotModelled)
    if (holds(one.words, word))
      return fmt::format("{} not modelled (docs/reference/limits.md)", one.what);
  for (const Meaning& one : kMeanings) {
    if (!holds(one.words, word)) continue;
    if (has(known, one.flag)) return fmt::format("here it is {} ({})", one.flag, one.how);
    return fmt::format("{} has {} ({})", one.tool, one.flag, one.how);
  }
  return std::nullopt;
}

std::optional<std::string> about_foreign_value(std::string_view flag, std::string_view value) {
  const std::string word = word_of(value);
  for (const ValueMeaning& one : kValueMeanings)
    if (one.flag == flag_of_values(flag) && holds(one.words, word)) return std::string(one.what);
  return std::nullopt;
}

}  // namespace mfsdp
