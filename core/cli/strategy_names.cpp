#include "core/cli/strategy_names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/base/text.hpp"
#include "core/plan/config_fields.hpp"
#include "core/plan/engine.hpp"

namespace mfsdp {
namespace {

struct StrategyAlias {
  std::string_view name;  ///< small letters, nothing between words
  NamedStrategy meaning;
};

constexpr NamedStrategy kHsdp{.strategy = Strategy::optim_grads_params,
                              .outer = Strategy::no_shard};

constexpr std::array kAliases{
    StrategyAlias{.name = "0", .meaning = {.strategy = Strategy::no_shard}},
    StrategyAlias{.name = "zero0", .meaning = {.strategy = Strategy::no_shard}},
    StrategyAlias{.name = "ddp", .meaning = {.strategy = Strategy::no_shard}},
    StrategyAlias{.name = "1", .meaning = {.strategy = Strategy::optim}},
    StrategyAlias{.name = "zero1", .meaning = {.strategy = Strategy::optim}},
    StrategyAlias{.name = "2", .meaning = {.strategy = Strategy::optim_grads}},
    StrategyAlias{.name = "zero2", .meaning = {.strategy = Strategy::optim_grads}},
    StrategyAlias{.name = "shardgradop", .meaning = {.strategy = Strategy::optim_grads}},
    StrategyAlias{.name = "3", .meaning = {}},
    StrategyAlias{.name = "zero3", .meaning = {}},
    StrategyAlias{.name = "fsdp", .meaning = {}},
    StrategyAlias{.name = "fullshard", .meaning = {}},
    StrategyAlias{.name = "hsdp", .meaning = kHsdp},
    StrategyAlias{.name = "hybridshard", .meaning = kHsdp},
    StrategyAlias{.name = "hybridshardzero2",
                  .meaning = {.strategy = Strategy::optim_grads, .outer = Strategy::no_shard}},
    StrategyAlias{.name = "hfsdp",
                  .meaning = {.strategy = Strategy::optim_grads_params, .outer = Strategy::optim}}};

/// A word that names an engine, and the text to write in its place.
struct EngineWord {
  std::string_view word;  ///< small letters, nothing between words
  std::string_view advice;
};

constexpr std::array kEngineWords{
    EngineWord{
        .word = "fsdp2",
        .advice =
            "PyTorch FSDP2 is an engine: mfsdp-sim --engine fsdp2; mfsdp-exec's own ZeRO-3 is "
            "--strategy optim_grads_params"},
    EngineWord{
        .word = "fsdp1",
        .advice =
            "PyTorch's first FSDP is an engine: mfsdp-sim --engine fsdp1; mfsdp-exec's own ZeRO-3 "
            "is --strategy optim_grads_params"},
    EngineWord{.word = "torchtitan",
               .advice =
                   "torchtitan trains by PyTorch FSDP2: mfsdp-sim --engine fsdp2-compile-loss; "
                   "mfsdp-exec's own ZeRO-3 is --strategy optim_grads_params"},
    EngineWord{.word = "deepspeed",
               .advice = "DeepSpeed is an engine: mfsdp-sim --engine deepspeed-zero1, "
                         "deepspeed-zero2 or deepspeed-zero3; its stages as mfsdp-exec has them "
                         "are --strategy zero1, zero2 and zero3"},
    EngineWord{.word = "megatronfsdp",
               .advice = "Megatron-FSDP is an engine: mfsdp-sim --engine megatron-fsdp-v1 or "
                         "megatron-fsdp-v2; mfsdp-exec's own "
                         "ZeRO-3 is --strategy optim_grads_params"},
    EngineWord{
        .word = "megatron",
        .advice =
            "Megatron-Core is an engine: mfsdp-sim --engine mcore; mfsdp-exec's own ZeRO-1 is "
            "--strategy optim"},
    EngineWord{.word = "distributedoptimizer",
               .advice =
                   "Megatron-Core's distributed optimizer is an engine: mfsdp-sim --engine mcore; "
                   "mfsdp-exec's own ZeRO-1 is --strategy optim"}};

/// "ZeRO-3" -> "zero3"
std::string letters_of(std::string_view text) { return joined_words(text, "-_"); }

}  // namespace

std::optional<NamedStrategy> parse_strategy(std::string_view text) {
  const std::string letters = letters_of(text);
  for (std::size_t i = 0; i < Names<Strategy>::values.size(); ++i)
    if (letters_of(Names<Strategy>::values.at(i)) == letters)
      return NamedStrategy{.strategy = static_cast<Strategy>(i)};
  const auto found = std::ranges::find(kAliases, letters, &StrategyAlias::name);
  return found == kAliases.end() ? std::nullopt : std::optional(found->meaning);
}

std::string engine_meant(std::string_view text) {
  const std::string letters = letters_of(text);
  const auto word = std::ranges::find(kEngineWords, letters, &EngineWord::word);
  if (word != kEngineWords.end()) return std::string(word->advice);
  for (const EngineTraits& engine : kEngines)
    if (letters_of(engine.name) == letters || letters_of(engine.stored) == letters)
      return fmt::format("{} is an engine: mfsdp-sim --engine {}; --strategy takes one of {}",
                         engine.name, engine.name, name_list<Strategy>());
  return "";
}

std::string_view field_name(Strategy strategy) {
  switch (strategy) {
    case Strategy::no_shard: return "DDP";
    case Strategy::optim: return "ZeRO-1";
    case Strategy::optim_grads: return "ZeRO-2";
    case Strategy::optim_grads_params: return "ZeRO-3";
  }
  return "";
}

std::string strategy_text(const PlanConfig& config) {
  const Mesh& mesh = config.mesh;
  std::string name =
      fmt::format("{} ({})", to_string(config.strategy), field_name(config.strategy));
  if (config.is_expert_parallel()) name += fmt::format(", experts over {}", config.expert_parallel);
  if (config.expert_strategy)
    name += fmt::format(" by {} ({})", to_string(*config.expert_strategy),
                        field_name(*config.expert_strategy));
  if (config.capacity_factor.num != 0)
    name += fmt::format(" with room for {} times their rows", flag_text(config.capacity_factor));
  if (const std::int64_t parts = sequence_parts(mesh); parts > 1)
    name += fmt::format(", sequences over {}{}", parts,
                        config.gathers_keys()  ? " by gathered keys"
                        : config.passes_keys() ? " by a ring"
                                               : "");
  if (const std::int64_t ranks = mesh.size(Axis::tp); ranks > 1)
    name += fmt::format(", blocks over {}", ranks);
  const std::int64_t replicas = mesh.size(Axis::dp_outer);
  const std::int64_t shards_of_one = ranks_on({Axis::dp_shard, Axis::cp}, mesh);
  if (replicas == 1) return name;
  const std::string groups = fmt::format("{} x {}", replicas, shards_of_one);
  if (config.outer_strategy == Strategy::optim) return name + ", HFSDP " + groups;
  const bool shards = config.strategy != Strategy::no_shard && shards_of_one > 1;
  return shards ? name + ", HSDP " + groups : name + ", " + groups + ", nothing sharded";
}

}  // namespace mfsdp
