// Options of other engines, by their frameworks' words: one row for each word of an engine.
//
// To add an option: its word in FrameworkWord, a row in kFrameworkOptions for each engine that has it, and
// its use in sim/engines.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>

#include "core/base/error.hpp"
#include "core/plan/engine.hpp"

namespace mfsdp {

enum class FrameworkWord {
  // torch.nn.parallel.DistributedDataParallel
  bucket_cap_mb,
  gradient_as_bucket_view,
  no_sync,
  // torch.distributed.fsdp.FullyShardedDataParallel
  limit_all_gathers,
  forward_prefetch,
  backward_prefetch,
  // DeepSpeed's zero_optimization
  reduce_bucket_size,
  overlap_comm,
  contiguous_gradients,
  sub_group_size,
  stage3_prefetch_bucket_size,
  stage3_max_live_parameters,
  stage3_max_reuse_distance,
  stage3_param_persistence_threshold
};

template <>
struct Names<FrameworkWord> {
  static constexpr std::array<std::string_view, 14> values{"bucket_cap_mb",
                                                           "gradient_as_bucket_view",
                                                           "no_sync",
                                                           "limit_all_gathers",
                                                           "forward_prefetch",
                                                           "backward_prefetch",
                                                           "reduce_bucket_size",
                                                           "overlap_comm",
                                                           "contiguous_gradients",
                                                           "sub_group_size",
                                                           "stage3_prefetch_bucket_size",
                                                           "stage3_max_live_parameters",
                                                           "stage3_max_reuse_distance",
                                                           "stage3_param_persistence_threshold"};
};

struct FrameworkOption {
  EngineKind engine{};
  FrameworkWord word{};
  std::int64_t fallback = 0;  ///< the framework's default; 0 and 1 are false and true of a switch
  bool is_switch = false;
  std::int64_t least = 0;  ///< of a number
};

/// The largest number of an option: DeepSpeed's configurations have sizes such as 1e14.
inline constexpr std::int64_t kMostOfOption = std::int64_t{1} << 53;

// Defaults: torch/nn/parallel/distributed.py and torch/distributed/fsdp of PyTorch 2.11;
// deepspeed/runtime/zero/config.py of DeepSpeed 0.19.6. backward_prefetch is BACKWARD_PRE or None.
inline constexpr std::array kFrameworkOptions{
    FrameworkOption{EngineKind::ddp, FrameworkWord::bucket_cap_mb, 25, false, 1},
    FrameworkOption{EngineKind::ddp, FrameworkWord::gradient_as_bucket_view, 0, true},
    FrameworkOption{EngineKind::ddp, FrameworkWord::no_sync, 0, true},
    FrameworkOption{EngineKind::fsdp1, FrameworkWord::limit_all_gathers, 1, true},
    FrameworkOption{EngineKind::fsdp1, FrameworkWord::forward_prefetch, 0, true},
    FrameworkOption{EngineKind::fsdp1, FrameworkWord::backward_prefetch, 1, true},
    FrameworkOption{EngineKind::fsdp1, FrameworkWord::no_sync, 0, true},
    FrameworkOption{EngineKind::deepspeed_zero1, FrameworkWord::reduce_bucket_size, 500'000'000},
    FrameworkOption{EngineKind::deepspeed_zero2, FrameworkWord::reduce_bucket_size, 500'000'000},
    FrameworkOption{EngineKind::deepspeed_zero2, FrameworkWord::overlap_comm, 0, true},
    FrameworkOption{EngineKind::deepspeed_zero3, FrameworkWord::reduce_bucket_size, 500'000'000},
    FrameworkOption{EngineKind::deepspeed_zero3, FrameworkWord::overlap_comm, 1, true},
    FrameworkOption{EngineKind::deepspeed_zero3, FrameworkWord::contiguous_gradients, 1, true},
    FrameworkOption{EngineKind::deepspeed_zero3, FrameworkWord::sub_group_size, 1'000'000'000,
                    false, 1},
    FrameworkOption{EngineKind::deepspeed_zero3, FrameworkWord::stage3_prefetch_bucket_size,
                    50'000'000},
    FrameworkOption{EngineKind::deepspeed_zero3, FrameworkWord::stage3_max_live_parameters,
                    1'000'000'000},
    FrameworkOption{EngineKind::deepspeed_zero3, FrameworkWord::stage3_max_reuse_distance,
                    1'000'000'000},
    FrameworkOption{EngineKind::deepspeed_zero3, FrameworkWord::stage3_param_persistence_threshold,
                    100'000},
};

/// The options that were given; all others have their framework's defaults.
class FrameworkOptions {
 public:
  /// Reads "overlap_comm=true" or "reduce_bucket_size=5e8". Errors name words that no engine has,
  /// and values that the word does not take.
  [[nodiscard]] Result<void> set(std::string_view text);
  /// Errors name the first option that the engine does not have.
  [[nodiscard]] Result<void> check(EngineKind engine) const;
  /// The engine's value. Requires that the engine has the word.
  [[nodiscard]] std::int64_t number(EngineKind engine, FrameworkWord word) const;
  [[nodiscard]] bool is_on(EngineKind engine, FrameworkWord word) const {
    return number(engine, word) != 0;
  }
  [[nodiscard]] bool has(FrameworkWord word) const { return given_.contains(word); }
  /// One sentence with all options of the engine; empty if it has none.
  [[nodiscard]] std::string statement(EngineKind engine) const;

  friend bool operator==(const FrameworkOptions&, const FrameworkOptions&) = default;

 private:
  std::map<FrameworkWord, std::int64_t> given_;
};

}  // namespace mfsdp
