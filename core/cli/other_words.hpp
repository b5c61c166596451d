// What other tools call the things that our flags and values name.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace mfsdp {

/// What to say about `flag` ("--tp", "--tensor_parallel_size"), which a tool with the flags `known`
/// does not have: that it is not modelled, or which flag means the same. Words of Megatron-LM,
/// Hugging Face's Trainer, DeepSpeed, torchtitan, verl and Slurm. None for other words.
[[nodiscard]] std::optional<std::string> about_foreign_flag(std::string_view flag,
                                                            std::span<const std::string> known);

/// What to say about a value that `flag` does not take, such as "torchtitan" of --engine: which
/// value means the same. None for other values.
[[nodiscard]] std::optional<std::string> about_foreign_value(std::string_view flag,
                                                             std::string_view value);

}  // namespace mfsdp
