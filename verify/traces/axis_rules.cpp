// Rules of tensor and context parallelism: sizes that their ranks cannot share, and settings that
// need or exclude each other.
#include <algorithm>
#include <array>

#include "verify/traces/configuration_rules.hpp"
#include "verify/traces/fsdp_facts.hpp"

namespace mfsdp::traces {
namespace {

constexpr std::string_view kTensor = "tensor_model_parallel_size";
constexpr std::string_view kContext = "context_parallel_size";
constexpr std::string_view kPipeline = "pipeline_model_parallel_size";
constexpr std::string_view kExchange = "cp_comm_type";
constexpr std::string_view kTransformerEngine =
    "NVIDIA/TransformerEngine transformer_engine/pytorch/attention/dot_product_attention/"
    "context_parallel.py";
constexpr std::string_view kModelConfig =
    "NVIDIA/Megatron-LM megatron/core/model_parallel_config.py";

/// Within bounds, so that two such numbers multiply without overflow; 1 where it is not known.
std::int64_t ranks_of(const Configuration& c, std::string_view axis) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  return std::clamp(c.number(axis).value_or(1), std::int64_t{1}, kMost);
}

std::string both(const Configuration& c, std::string_view a, std::string_view b) {
  return shown(c, a) + ", " + shown(c, b);
}

/// How context-parallel ranks exchange keys and values; p2p, a ring, is Megatron-Core's default.
std::string exchange_of(const Configuration& c) {
  const auto setting = c.find(kExchange);
  return setting ? setting->value : "p2p";
}

Broken tensor_shares(const Configuration& c) {
  const std::int64_t ranks = ranks_of(c, kTensor);
  if (ranks < 2) return std::nullopt;
  const bool cuts_rows = c.is_on("sequence_parallel");
  const std::int64_t rows = cuts_rows ? c.number("seq_length").value_or(0) : 0;
  if (rows % (ranks * ranks_of(c, kContext)) != 0) return both(c, kTensor, "seq_length");
  for (const std::string_view size : {"num_attention_heads", "ffn_hidden_size", "hidden_size"})
    if (c.number(size).value_or(0) % ranks != 0) return both(c, kTensor, size);
  const std::int64_t groups = c.number("num_query_groups").value_or(ranks);
  const bool shares = groups > 0 && (groups % ranks == 0 || ranks % groups == 0);
  return shares ? std::nullopt : Broken(both(c, kTensor, "num_query_groups"));
}

Broken context_shares(const Configuration& c) {
  const std::int64_t ranks = ranks_of(c, kContext);
  if (ranks < 2) return std::nullopt;
  if (c.number("seq_length").value_or(0) % (2 * ranks) != 0) return both(c, kContext, "seq_length");
  if (exchange_of(c) != "a2a") return std::nullopt;
  const std::int64_t shares = ranks * ranks_of(c, kTensor);
  for (const std::string_view heads : {"num_attention_heads", "num_query_groups"})
    if (c.number(heads).value_or(0) % shares != 0)
      return shown(c, kExchange) + ", " + both(c, kContext, heads);
  return std::nullopt;
}

Broken ring_window(const Configuration& c) {
  const bool is_ring = exchange_of(c).find("p2p") != std::string::npos;
  if (ranks_of(c, kContext) < 2 || !is_ring || !c.is_on("window_size")) return std::nullopt;
  return both(c, kContext, "window_size");
}

/// Judges only command lines, in which a missing flag means off.
Broken overlap_without_rows(const Configuration& c) {
  constexpr std::string_view kOverlap = "tp_comm_overlap";
  const bool off =
      c.is_off("sequence_parallel") || (c.is_flag(kOverlap) && !c.is_on("sequence_parallel"));
  if (!c.is_on(kOverlap) || !off) return std::nullopt;
  return both(c, kOverlap, "sequence_parallel");
}

Broken rows_without_ranks(const Configuration& c) {
  constexpr std::string_view kRows = "sequence_parallel";
  const bool known = c.find(kTensor) || c.is_flag(kRows);
  const bool unknown = !c.find(kTensor) && c.is_on(kTensor);  // "$TP"
  if (!c.is_on(kRows) || !known || unknown || ranks_of(c, kTensor) > 1) return std::nullopt;
  return both(c, kRows, kTensor);
}

/// A value that is no number of ranks; shell variables are unknown.
Broken rank_count(const Configuration& c) {
  for (const std::string_view axis : {kTensor, kContext}) {
    const auto setting = c.find(axis);
    if (setting && c.number(axis).value_or(0) < 1) return shown(c, axis);
  }
  return std::nullopt;
}

/// One way for all layers, or a list with one for each.
Broken exchange_words(const Configuration& c) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789_+";
  static constexpr std::array<std::string_view, 5> kKnown{"a2a", "a2a+p2p", "all_gather",
                                                          "allgather", "p2p"};
  const auto setting = c.find(kExchange);
  if (!setting || setting->value == "none") return std::nullopt;
  const std::string_view text = setting->value;
  std::size_t begin = text.find_first_of(kLetters);
  if (begin == std::string_view::npos) return shown(c, kExchange);
  while (begin != std::string_view::npos) {
    const std::size_t end = std::min(text.find_first_not_of(kLetters, begin), text.size());
    if (std::ranges::find(kKnown, text.substr(begin, end - begin)) == kKnown.end())
      return shown(c, kExchange);
    begin = text.find_first_of(kLetters, end);
  }
  return std::nullopt;
}

/// torchrun's processes, where their number is stated: "--nproc-per-node gpu" is not.
Broken launched_ranks(const Configuration& c) {
  constexpr std::string_view kProcesses = "nproc_per_node";
  constexpr std::string_view kNodes = "nnodes";
  const bool has_nodes = c.is_on(kNodes);
  if (c.number(kProcesses).value_or(0) < 1 || (has_nodes && c.number(kNodes).value_or(0) < 1))
    return std::nullopt;
  std::int64_t left = ranks_of(c, kProcesses) * ranks_of(c, kNodes);
  for (const std::string_view axis : {kTensor, kContext, kPipeline}) {
    if (left % ranks_of(c, axis) != 0)
      return has_nodes ? shown(c, axis) + ", " + both(c, kProcesses, kNodes)
                       : both(c, axis, kProcesses);
    left /= ranks_of(c, axis);
  }
  return std::nullopt;
}

constexpr std::array kAxisRules{
    ConfigurationRule{"MF741", "tensor-parallel ranks cannot share it equally",
                      "choose a number of ranks that divides heads and widths, and that divides "
                      "the key-value groups or is a multiple of them",
                      "NVIDIA/Megatron-LM megatron/core/transformer/transformer_config.py",
                      tensor_shares},
    ConfigurationRule{"MF742",
                      "context-parallel ranks cannot share it equally: each has two chunks of a "
                      "sequence, and with a2a an equal part of a rank's heads",
                      "choose a sequence that twice the ranks divides, and with a2a fewer ranks "
                      "than heads",
                      kTransformerEngine, context_shares},
    ConfigurationRule{"MF743", "a ring of context-parallel ranks has no sliding windows",
                      "use cp_comm_type all_gather or a2a", kTransformerEngine, ring_window},
    ConfigurationRule{"MF744", "tensor-parallel collectives overlap only with sequence parallelism",
                      "set sequence_parallel too", kModelConfig, overlap_without_rows},
    ConfigurationRule{"MF745", "sequence parallelism needs several tensor-parallel ranks",
                      "leave sequence_parallel out, or set tensor_model_parallel_size",
                      kModelConfig, rows_without_ranks},
    ConfigurationRule{"MF746", "it is no number of ranks", "use a whole number of at least 1",
                      kModelConfig, rank_count},
    ConfigurationRule{"MF747", "it is no way to exchange keys and values",
                      "use p2p, a2a, all_gather or a2a+p2p", kTransformerEngine, exchange_words},
    ConfigurationRule{"MF748", "the launched processes cannot be divided over these axes",
                      "launch a multiple of the ranks on all of them",
                      "NVIDIA/Megatron-LM megatron/core/parallel_state.py", launched_ranks},
};

}  // namespace

std::span<const ConfigurationRule> axis_rules() { return kAxisRules; }

}  // namespace mfsdp::traces
