#include "core/cli/not_modelled.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "core/base/text.hpp"

namespace mfsdp {
namespace {

struct Foreign {
  std::string_view what;
  std::span<const std::string_view> flags;  ///< without dashes before, with dashes within
};

constexpr std::array<std::string_view, 6> kTensor{"tp",
                                                  "tp-size",
                                                  "tensor-parallel",
                                                  "tensor-parallel-size",
                                                  "tensor-model-parallel-size",
                                                  "tensor-parallel-degree"};
constexpr std::array<std::string_view, 9> kPipeline{"pp",
                                                    "pp-size",
                                                    "pipeline-parallel",
                                                    "pipeline-parallel-size",
                                                    "pipeline-model-parallel-size",
                                                    "pipeline-parallel-degree",
                                                    "num-stages",
                                                    "pipeline-stages",
                                                    "virtual-pipeline-model-parallel-size"};
constexpr std::array<std::string_view, 4> kExpertTensor{"etp", "etp-size", "expert-tensor-parallel",
                                                        "expert-tensor-parallel-size"};
constexpr std::array<std::string_view, 2> kExpertOuter{"expert-outer-dp", "expert-outer-strategy"};
constexpr std::array<std::string_view, 8> kContext{"cp",
                                                   "cp-size",
                                                   "context-parallel",
                                                   "context-parallel-size",
                                                   "context-parallel-degree",
                                                   "ulysses",
                                                   "ulysses-size",
                                                   "ring-attention"};
constexpr std::array<std::string_view, 3> kSequence{"sp", "sequence-parallel",
                                                    "sequence-parallel-size"};
constexpr std::array<std::string_view, 1> kQlora{"qlora"};
constexpr std::array<std::string_view, 12> kNarrow{
    "fp8",   "fp8-format", "fp8-recipe", "mxfp8",        "fp4",      "nvfp4",
    "mxfp4", "int8",       "int4",       "load-in-8bit", "quantize", "quantization"};
constexpr std::array<std::string_view, 10> kOffload{"cpu-offload",           "offload",
                                                    "optimizer-offload",     "offload-optimizer",
                                                    "optimizer-cpu-offload", "activation-offload",
                                                    "cpu-offloading",        "offload-params",
                                                    "param-offload",         "nvme-offload"};
constexpr std::array kForeign{
    Foreign{.what = "tensor parallelism", .flags = kTensor},
    Foreign{.what = "pipeline parallelism", .flags = kPipeline},
    Foreign{.what = "tensor parallelism of experts", .flags = kExpertTensor},
    Foreign{.what = "groups of ranks for experts alone", .flags = kExpertOuter},
    Foreign{.what = "context parallelism", .flags = kContext},
    Foreign{.what = "sequence parallelism", .flags = kSequence},
    Foreign{.what = "QLoRA (a base of 4 bits)", .flags = kQlora},
    Foreign{.what = "FP8, FP4 and integers", .flags = kNarrow},
    Foreign{.what = "offloading", .flags = kOffload}};

constexpr std::array<std::string_view, 5> kDataParallel{
    "dp", "dp-size", "data-parallel", "data-parallel-size", "data-parallel-degree"};
constexpr std::array<std::string_view, 5> kExpert{
    "ep-size", "expert-parallel", "expert-parallel-size", "expert-model-parallel-size",
    "enable-expert-parallel"};
constexpr std::array<std::string_view, 3> kCapacity{
    "moe-expert-capacity-factor", "expert-capacity-factor", "moe-capacity-factor"};
constexpr std::array<std::string_view, 4> kLora{"lora", "lora-r", "peft", "adapters"};
constexpr std::array<std::string_view, 4> kZero{"zero", "zero-stage", "zero-optimization",
                                                "sharding-strategy"};

bool is_one(std::string_view what) {
  return what.find(" and ") == std::string_view::npos && !what.starts_with("groups");
}

bool holds(std::span<const std::string_view> flags, std::string_view word) {
  return std::ranges::find(flags, word) != flags.end();
}

/// "--Tensor_Parallel" -> "tensor-parallel"
std::string word_of(std::string_view flag) {
  std::string word = lower_case(flag.substr(std::min(flag.find_first_not_of('-'), flag.size())));
  std::ranges::replace(word, '_', '-');
  return word;
}

}  // namespace

std::optional<std::string> about_foreign_flag(std::string_view flag) {
  const std::string word = word_of(flag);
  for (const Foreign& foreign : kForeign)
    if (holds(foreign.flags, word))
      return fmt::format("{} {} not modelled (docs/limits.md)", foreign.what,
                         is_one(foreign.what) ? "is" : "are");
  if (holds(kDataParallel, word))
    return "every GPU is data-parallel: --gpus says how many there are, --outer-dp how many groups";
  if (holds(kExpert, word)) return "ask by --ep, such as --ep 8 (docs/experts.md)";
  if (holds(kCapacity, word))
    return "ask by --capacity-factor, beside --ep; no row is dropped (docs/experts.md)";
  if (word == "routing")
    return "what routers choose changes no plan: ask mfsdp-sim (docs/experts.md)";
  if (holds(kLora, word)) return "ask by --lora-rank, such as --lora-rank 16 (docs/lora.md)";
  if (holds(kZero, word)) return "ask by --strategy, such as --strategy zero3";
  return std::nullopt;
}

}  // namespace mfsdp
