// A query that selects runs of a store.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/base/vocabulary.hpp"

namespace mfsdp {

enum class RunKind { simulated, measured };

constexpr auto value_names(RunKind) { return name_array("simulated", "measured"); }

/// Every member that is given must hold. Texts are whole, or patterns with * and ?.
struct RunFilter {
  std::optional<std::string> model = {};    ///< of its name
  std::optional<std::string> cluster = {};  ///< of the GPU or the network's name
  std::optional<std::int64_t> gpus = {};
  std::optional<RunKind> kind = {};
  std::optional<std::string> commit = {};     ///< of the program that made the run: its beginning
  std::optional<std::string> name = {};       ///< of the run
  std::optional<std::int64_t> since_ns = {};  ///< made at or after, in unix nanoseconds
  std::optional<std::int64_t> until_ns = {};  ///< made before

  friend bool operator==(const RunFilter&, const RunFilter&) = default;
};

/// Runs that may be held against each other: one model on as many equal GPUs, of one kind.
struct RunGroup {
  std::string model_name;
  std::string gpu;
  std::int64_t gpus = 0;
  std::string source;  ///< "simulated" or "measured"

  friend bool operator==(const RunGroup&, const RunGroup&) = default;
};

/// `stored`: in the order of saving; `newest`: the reverse; `fastest`: by tokens/s per GPU, most
/// first, of runs that fit and came to their end.
enum class RunOrder { stored, newest, fastest };

struct RunQuery {
  RunFilter filter = {};
  std::optional<std::int64_t> row = {};
  std::optional<std::string> id_prefix = {};
  std::optional<std::string> exact_name = {};
  std::optional<std::string> mark = {};  ///< runs that have it
  std::optional<RunGroup> like = {};     ///< runs of the group alone
  std::optional<RunGroup> unlike = {};   ///< runs of other groups alone
  RunOrder order = RunOrder::stored;
  std::optional<std::int64_t> limit = {};
};

}  // namespace mfsdp
