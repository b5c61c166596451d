// Options of engines of others that mfsdp-exec does not have. Each flag has its framework's word.
//
// To add one: its member here, its text in flag_text(), its flag in engine_group()
// (sim/tool/sim_options.cpp), and its name in EngineTraits::options of the engines that have it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/vocabulary.hpp"

namespace mfsdp {

/// The code of the model that trains.
enum class Modules {
  fused,         ///< query, key and value are one GEMM, gate and up another (gpu_lab/engines)
  transformers,  ///< Hugging Face's classes
  torchtitan
};

template <>
struct Names<Modules> {
  static constexpr std::array<std::string_view, 3> values{"fused", "transformers", "torchtitan"};
};

/// The modules that fully_shard() is called on. Each is gathered and reduced at once.
struct FsdpUnits {
  std::int64_t blocks = 1;       ///< that one unit has; 0: the whole model is one unit
  bool ends_apart = false;       ///< the embedding is a unit, final norm and head are another
  bool parts_of_blocks = false;  ///< attention and MLP are units; the block's norms are a third

  friend bool operator==(const FsdpUnits&, const FsdpUnits&) = default;
};

/// torchtitan's selective activation checkpointing.
struct SelectiveAc {
  /// Saves attention, every second GEMM and reductions; computes all else again.
  bool by_operator = false;
  std::int64_t every = 0;  ///< every n-th block is computed again; 0: none

  [[nodiscard]] bool is_given() const { return by_operator || every != 0; }
  friend bool operator==(const SelectiveAc&, const SelectiveAc&) = default;
};

/// Defaults are the engines' behaviour without the flag.
struct EngineOptions {
  /// FSDP2's set_requires_gradient_sync(False) in all microbatches but the last one.
  bool accumulate_unsharded = false;
  /// The root, too, is resharded after forward: reshard_after_forward=True was passed for it.
  bool reshard_root = false;
  FsdpUnits units{};
  SelectiveAc selective_ac{};
  Modules modules = Modules::fused;
  /// The loss works on logits in their own type (bf16), not on a copy in fp32.
  bool bf16_loss = false;
  /// A variable of the training loop holds the logits until backward has ended.
  bool holds_logits = false;

  friend bool operator==(const EngineOptions&, const EngineOptions&) = default;
};

/// All flags of these options.
inline constexpr std::array<std::string_view, 7> kEngineOptionFlags{
    "--accumulate-unsharded", "--reshard-root", "--fsdp-unit",
    "--selective-ac",         "--modules",      "--bf16-loss",
    "--hold-logits"};

/// "block", "model", "blocks:K", "parts"; each with ",ends" where the ends are apart.
[[nodiscard]] std::string flag_text(const FsdpUnits& units);
/// "op", or the number of every n-th block.
[[nodiscard]] std::string flag_text(const SelectiveAc& selective);
/// The flags that differ from the default, as they are given; empty: none.
[[nodiscard]] std::string flag_text(const EngineOptions& options);

/// As flag_text() writes them. Empty for any other text.
[[nodiscard]] std::optional<FsdpUnits> parse_fsdp_units(std::string_view text);
[[nodiscard]] std::optional<SelectiveAc> parse_selective_ac(std::string_view text);

}  // namespace mfsdp
