// The plan as the checker sees it: read from its JSON, ids replaced by positions.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

namespace mfsdp::checker {

/// Thrown where the plan or the certificate is wrong; check_certificate() turns it into its error.
/// An exception, since most lines of the checker may refuse and all of them refuse for good.
struct Refusal {
  std::string where;
  std::string what;
};

enum class Kind {
  acquire,
  collective,
  copy,
  group_begin,
  group_end,
  host_wait,
  kernel,
  record,
  release,
  wait
};

using PerAxis = std::array<std::int64_t, 2>;  ///< dp_outer, dp_shard

struct Operand {
  std::string role{};
  bool writes = false;
  bool reads = false;
  int buffer = 0;
  std::int64_t offset = 0;    ///< bytes, on the rank with index 0 on both axes
  std::int64_t begin = 0;     ///< of the bytes that it spans on all ranks together
  std::int64_t end = 0;       ///< in the pool, as `begin`
  std::int64_t elements = 0;  ///< of one rank
  PerAxis strides{};          ///< bytes that it moves for each index on an axis
  std::string dtype{};
  bool dense = true;   ///< without gaps
  bool plain = false;  ///< dense, in its buffer's dtype, and no scalar multiplies or cuts it
};

struct Op {
  Kind kind = Kind::kernel;
  std::int64_t id = 0;
  std::string name;
  int stream = 0;
  int unit = -1;
  bool recomputes = false;
  std::string does;  ///< which kernel, collective or copy
  /// A kernel's, with the scalars that they name; input and output of a collective or copy; all of
  /// the buffer that is acquired or released.
  std::vector<Operand> operands;
  std::vector<std::pair<std::string, std::int64_t>> attributes;
  int event = -1;
  std::vector<std::pair<std::int64_t, std::int64_t>> bindings;  ///< record's id and distance
  int communicator = -1;
  std::int64_t count = 0;
  std::string dtype;
  std::string reduction;

  [[nodiscard]] std::int64_t attribute(const std::string& which) const {
    for (const auto& [key, value] : attributes)
      if (key == which) return value;
    return 0;
  }
  [[nodiscard]] const Operand* operand(const std::string& which) const {
    for (const Operand& one : operands)
      if (one.role == which) return &one;
    return nullptr;
  }
};

struct Segment {
  std::string name;
  std::int64_t repeat = 1;
  std::vector<Op> ops;
  std::vector<int> live_in;  ///< ascending
  std::vector<int> live_out;
};

struct Plan {
  std::string name;
  std::vector<Segment> segments;
};

struct Buffer {
  std::string name;
  std::string category;
  std::string dtype;
  int pool = 0;
  int unit = -1;
  std::int64_t begin = 0;  ///< in the pool
  std::int64_t end = 0;
  bool persistent = false;
};

struct Communicator {
  std::vector<int> axes;
  std::int64_t size = 1;
};

struct PlanView {
  PerAxis mesh{};
  int streams = 0;
  int events = 0;
  std::vector<std::int64_t> pools;  ///< heights
  std::vector<Communicator> communicators;
  std::vector<Buffer> buffers;
  std::vector<Plan> plans;
};

[[nodiscard]] PlanView read_plan(const nlohmann::json& document);

}  // namespace mfsdp::checker
