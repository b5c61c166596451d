// Options of engines of others, by their frameworks' words: one row for each (kEngineOptions).
//
// To add one: its row, and its use in sim/engines. Parsing, refusals, statements and --help follow
// from the row.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/vocabulary.hpp"
#include "core/plan/config.hpp"
#include "core/plan/engine.hpp"

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

/// How ranks that share sequences exchange keys and values (Transformer Engine's cp_comm_type).
enum class ContextComm { p2p, all_gather, a2a };

template <>
struct Names<ContextComm> {
  static constexpr std::array<std::string_view, 3> values{"p2p", "all_gather", "a2a"};
};

/// The kinds of options. A bool is a switch.
using OptionValue = std::variant<bool, std::int64_t, Modules, FsdpUnits, SelectiveAc, ContextComm>;

/// An option has a meaning with that part of a job, and answers state it there. `anything` has one
/// everywhere, and `anything_if_given` is stated only where it was given.
enum class OptionWith { anything, anything_if_given, fp8, tp, cp, pp };

/// The parts of a job that options depend on.
struct OptionUses {
  bool fp8 = false;
  bool tp = false;
  bool cp = false;
  bool pp = false;

  [[nodiscard]] constexpr bool has(OptionWith with) const {
    switch (with) {
      case OptionWith::fp8: return fp8;
      case OptionWith::tp: return tp;
      case OptionWith::cp: return cp;
      case OptionWith::pp: return pp;
      default: return true;
    }
  }
};

[[nodiscard]] OptionUses option_uses(const PlanConfig& config);

struct EngineOption {
  /// With dashes: a flag. Else --engine-option takes it, as WORD=VALUE.
  std::string_view word;
  EngineFamily family;                            ///< the engines that have it
  OptionValue usual;                              ///< the default, which decides the kind
  std::int64_t least = 0;                         ///< of a number
  std::string_view value = {};                    ///< of a flag: what --help calls its value
  std::string_view help = {};                     ///< of a flag
  std::string_view examples = {};                 ///< of a flag's values, with blanks between
  std::optional<EngineKind> only = std::nullopt;  ///< the one engine of the family that has it
  OptionWith with = OptionWith::anything;

  [[nodiscard]] constexpr bool is_flag() const { return word.starts_with("--"); }
  [[nodiscard]] constexpr bool is_of(const EngineTraits& engine) const {
    return family == engine.family && only.value_or(engine.kind) == engine.kind;
  }
};

/// The largest number of an option: DeepSpeed's configurations have sizes such as 1e14.
inline constexpr std::int64_t kMostOfOption = std::int64_t{1} << 53;

// Defaults of others: torch/nn/parallel/distributed.py and torch/distributed/fsdp of PyTorch 2.11;
// deepspeed/runtime/zero/config.py of DeepSpeed 0.19.6. backward_prefetch is BACKWARD_PRE or None.
inline constexpr std::array kEngineOptions{
    EngineOption{"--modules", EngineFamily::fsdp2, Modules::fused, 0, "M",
                 "the model's code: fused, transformers or torchtitan (fused)",
                 "fused transformers torchtitan"},
    EngineOption{"--fsdp-unit", EngineFamily::fsdp2, FsdpUnits{}, 0, "U",
                 "fully_shard of: block, blocks:K, parts, model; block,ends (block)",
                 "block block,ends blocks:2 parts model"},
    EngineOption{"--selective-ac", EngineFamily::fsdp2, SelectiveAc{}, 0, "op|N",
                 "recompute by operator, torchtitan's default, or every N-th block", "op"},
    // set_requires_gradient_sync(False) in all microbatches but the last one.
    EngineOption{"--accumulate-unsharded", EngineFamily::fsdp2, false, 0, "",
                 "reduce gradients in the last microbatch alone"},
    EngineOption{"--reshard-root", EngineFamily::fsdp2, false, 0, "",
                 "reshard_after_forward=True for the root, too"},
    EngineOption{"--bf16-loss", EngineFamily::fsdp2, false, 0, "",
                 "the loss works on bf16 logits, without a copy in fp32"},
    EngineOption{"--hold-logits", EngineFamily::fsdp2, false, 0, "",
                 "the training loop holds the logits through backward"},
    // torchao's Float8LinearConfig, and its function after the optimizer.
    EngineOption{.word = "enable_fsdp_float8_all_gather",
                 .family = EngineFamily::fsdp2,
                 .usual = false,
                 .with = OptionWith::fp8},
    EngineOption{.word = "precompute_float8_dynamic_scale_for_fsdp",
                 .family = EngineFamily::fsdp2,
                 .usual = false,
                 .with = OptionWith::fp8},
    EngineOption{.word = "force_recompute_fp8_weight_in_bwd",
                 .family = EngineFamily::fsdp2,
                 .usual = false,
                 .with = OptionWith::fp8},
    // Megatron-Core's words. Without overlap a buffer is one bucket.
    EngineOption{.word = "overlap_grad_reduce",
                 .family = EngineFamily::mcore,
                 .usual = true,
                 .with = OptionWith::anything_if_given},
    EngineOption{.word = "overlap_param_gather",
                 .family = EngineFamily::mcore,
                 .usual = true,
                 .with = OptionWith::anything_if_given},
    EngineOption{.word = "sequence_parallel",
                 .family = EngineFamily::mcore,
                 .usual = true,
                 .with = OptionWith::tp},
    EngineOption{.word = "tp_comm_overlap",
                 .family = EngineFamily::mcore,
                 .usual = false,
                 .with = OptionWith::tp},
    EngineOption{.word = "cp_comm_type",
                 .family = EngineFamily::mcore,
                 .usual = ContextComm::p2p,
                 .with = OptionWith::cp},
    EngineOption{.word = "account_for_embedding_in_pipeline_split",
                 .family = EngineFamily::mcore,
                 .usual = false,
                 .with = OptionWith::pp},
    EngineOption{.word = "account_for_loss_in_pipeline_split",
                 .family = EngineFamily::mcore,
                 .usual = false,
                 .with = OptionWith::pp},
    EngineOption{"bucket_cap_mb", EngineFamily::ddp, std::int64_t{25}, 1},
    EngineOption{"gradient_as_bucket_view", EngineFamily::ddp, false},
    EngineOption{"limit_all_gathers", EngineFamily::fsdp1, true},
    EngineOption{"forward_prefetch", EngineFamily::fsdp1, false},
    EngineOption{"backward_prefetch", EngineFamily::fsdp1, true},
    EngineOption{"no_sync", EngineFamily::ddp, false},
    EngineOption{"no_sync", EngineFamily::fsdp1, false},
    EngineOption{"reduce_bucket_size", EngineFamily::deepspeed_states, std::int64_t{500'000'000}},
    EngineOption{"reduce_bucket_size", EngineFamily::deepspeed_weights, std::int64_t{500'000'000}},
    EngineOption{.word = "overlap_comm",
                 .family = EngineFamily::deepspeed_states,
                 .usual = false,
                 .only = EngineKind::deepspeed_zero2},
    EngineOption{"overlap_comm", EngineFamily::deepspeed_weights, true},
    EngineOption{"contiguous_gradients", EngineFamily::deepspeed_weights, true},
    EngineOption{"sub_group_size", EngineFamily::deepspeed_weights, std::int64_t{1'000'000'000}, 1},
    EngineOption{"stage3_prefetch_bucket_size", EngineFamily::deepspeed_weights,
                 std::int64_t{50'000'000}},
    EngineOption{"stage3_max_live_parameters", EngineFamily::deepspeed_weights,
                 std::int64_t{1'000'000'000}},
    EngineOption{"stage3_max_reuse_distance", EngineFamily::deepspeed_weights,
                 std::int64_t{1'000'000'000}},
    EngineOption{"stage3_param_persistence_threshold", EngineFamily::deepspeed_weights,
                 std::int64_t{100'000}}};

/// The engine's row of a word; null if it has none.
[[nodiscard]] constexpr const EngineOption* option_of(EngineKind engine, std::string_view word) {
  for (const EngineOption& option : kEngineOptions)
    if (option.word == word && option.is_of(traits_of(engine))) return &option;
  return nullptr;
}

[[nodiscard]] constexpr bool has_option(EngineKind engine, std::string_view word) {
  return option_of(engine, word) != nullptr;
}

/// A word of kEngineOptions. Any other text does not compile.
struct OptionWord {
  std::string_view text;

  // NOLINTNEXTLINE(google-explicit-constructor): code writes the word
  consteval OptionWord(const char* word) : text(word) {
    if (std::ranges::find(kEngineOptions, text, &EngineOption::word) == kEngineOptions.end())
      throw "no engine has this option";
  }
};

/// The options that were given; all others have the engine's defaults.
class EngineOptions {
 public:
  /// `text` is empty for a flag that is a switch. Errors name the expected values. Requires a word
  /// of kEngineOptions.
  [[nodiscard]] Result<void> set(std::string_view word, std::string_view text);
  /// Reads "overlap_comm=true" or "reduce_bucket_size=5e8". Errors also name words that no engine
  /// has.
  [[nodiscard]] Result<void> set(std::string_view assignment);
  /// Errors name all options that the engine does not have, and the engines that have them.
  [[nodiscard]] Result<void> check(EngineKind engine) const;

  /// The engine's value. Requires that the engine has the word, and the type of its default.
  template <class Value>
  [[nodiscard]] Value get(EngineKind engine, OptionWord word) const {
    return std::get<Value>(value(engine, word.text));
  }
  [[nodiscard]] bool is_on(EngineKind engine, OptionWord word) const {
    return get<bool>(engine, word);
  }
  [[nodiscard]] std::int64_t number(EngineKind engine, OptionWord word) const {
    return get<std::int64_t>(engine, word);
  }
  [[nodiscard]] bool has(OptionWord word) const { return given_.contains(word.text); }

  /// The options of the engine that differ from its defaults, as they are given; empty: none.
  [[nodiscard]] std::string changes(EngineKind engine) const;
  /// One sentence with the options that have a meaning in the job; empty if there are none.
  [[nodiscard]] std::string statement(EngineKind engine, const OptionUses& uses = {}) const;
  /// Refuses options that were given and that have no meaning in the job.
  [[nodiscard]] Result<void> check_uses(const OptionUses& uses) const;

 private:
  [[nodiscard]] const OptionValue& value(EngineKind engine, std::string_view word) const;

  std::map<std::string_view, OptionValue> given_;  ///< by the words of kEngineOptions
};

}  // namespace mfsdp
