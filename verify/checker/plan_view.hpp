// The plan as the checker sees it: its JSON, with what is needed often at hand and ids replaced by
// positions. For the sources of this folder only. What is missing or of the wrong type in the JSON
// throws a std::exception, as does an id that names nothing; check_certificate() catches them.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <vector>

#include "verify/checker/check_certificate.hpp"

namespace mfsdp::checker {

using Json = nlohmann::json;
using Int = std::int64_t;
using PerAxis = std::map<std::string, Int>;  ///< by the axis' name

/// Nearly every line here may refuse, and all of them refuse for good: "place: what is claimed,
/// what is so".
template <class... Parts>
[[noreturn]] void refuse(fmt::format_string<Parts...> what, Parts&&... parts) {
  throw std::runtime_error(fmt::format(what, std::forward<Parts>(parts)...));
}

/// Numbers of documents are integers from 0 to here: sums of a few never overflow.
inline constexpr Int kMost = Int{1} << 60;
inline Int times(Int a, Int b) {
  if (b != 0 && a > kMost / b) refuse("{} times {} is too large", a, b);
  return a * b;
}
inline Int plus(Int a, Int b) { return times(1, a + b); }
/// Bytes of one element: dtypes are named for their bits.
inline Int size_of(const std::string& dtype) {
  return std::stoi(dtype.substr(dtype.find_first_of("123456789"))) / 8;
}

/// Bytes that an op touches: those of an operand, or of a buffer that is acquired or released.
struct Operand {
  std::string role{}, dtype{};
  int buffer = 0, pool = 0;
  bool writes = true, dense = true;  ///< dense: without gaps
  Int offset = 0;                    ///< in the buffer, on the rank with index 0 on each axis
  Int begin = 0, end = 0;            ///< in the pool, of all that it spans on all ranks together
  Int elements = 1;                  ///< of one rank
  PerAxis strides{};                 ///< bytes that it moves for each index on an axis; not 0
};

struct Op {
  Int id;
  const Json *json, *body;  ///< its body by kind
  std::string kind, does;   ///< which kernel, collective or copy
  int stream;
  std::vector<Operand> operands;

  [[nodiscard]] std::string place() const {
    return fmt::format("op {} ({})", json->at("id").dump(), json->at("name").get<std::string>());
  }
};

/// One run of an op. Two steps are looked at, with repeated segments twice: what is ordered there
/// is ordered in every later one, as each wait then gets the same record, one step on.
struct Instance {
  const Op* op;
  Int step, pass;  ///< a pass is one run of a segment
};

using Plan = std::vector<Instance>;  ///< in host order

struct PlanView {
  const Json& json;
  PerAxis mesh{};                                   ///< ranks of each axis that has several
  std::map<std::string, std::map<Int, int>> ids{};  ///< positions by list and id
  std::vector<Operand> buffers{};                   ///< all bytes of each
  std::deque<Op> ops{};
  std::vector<Plan> plans{};

  [[nodiscard]] Int ranks_on(const std::string& axis) const {
    const auto found = mesh.find(axis);
    return found == mesh.end() ? 1 : found->second;
  }
  /// The position in a list of what an object's field names.
  [[nodiscard]] int at(const char* list, const Json& object, const char* key) const {
    return ids.at(list).at(object.at(key));
  }
  [[nodiscard]] const Json& communicator_of(const Op& op) const {
    return json.at("communicators").at(at("communicators", *op.body, "communicator"));
  }
};

/// The values of [begin, end) of what has values by where they begin, cut to it.
template <class T>
std::vector<T*> cut_out(std::map<Int, T>& values, Int begin, Int end) {
  std::vector<T*> found;
  for (const Int at : {begin, end})
    if (begin < end) values.emplace(at, std::prev(values.upper_bound(at))->second);
  for (auto i = values.find(begin); begin < end && i->first != end; ++i)
    found.push_back(&i->second);
  return found;
}

/// Each takes a plan of the view, and refuses or adds what it looked at to the figures.
void check_races(const PlanView& view, const Plan& plan, const Json& clocks, CheckedPlan& figures);
void check_ledger(const PlanView& view, const Plan& plan, CheckedPlan& figures);

}  // namespace mfsdp::checker
