// The plan as the checker reads it: its JSON, with frequent look-ups prepared and ids replaced by
// positions. For the sources of this folder only. A missing or mistyped JSON value throws a
// std::exception, as does an unknown id; check_certificate() catches them.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "verify/checker/check_certificate.hpp"

namespace mfsdp::checker {

using Json = nlohmann::json;
using Int = std::int64_t;
using Index = std::size_t;                   ///< a position in a list
inline constexpr Index kNone = SIZE_MAX;     ///< no position
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
/// Ranks of a grid.
inline Int ranks_of(const PerAxis& grid) {
  Int all = 1;
  for (const auto& [axis, size] : grid) all = times(all, size);
  return all;
}
/// Bytes: a workspace begins at a multiple of it in its buffer.
inline constexpr Int kScratchUnit = 256;
/// Bytes of one element: dtypes are named for their bits.
inline Int size_of(const std::string& dtype) {
  if (dtype == "fp4_e2m1x2") return 1;  // two numbers
  return std::stoi(dtype.substr(dtype.find_first_of("123456789"))) / 8;
}

/// Bytes that an op touches: those of an operand, or of a buffer that is acquired or released.
struct Operand {
  std::string role{}, dtype{}, access = "write";
  Index buffer = 0, pool = 0;
  bool writes = true, dense = true;  ///< dense: without gaps
  Int offset = 0;                    ///< in the buffer, on the rank with index 0 on each axis
  Int begin = 0, end = 0;            ///< in the pool, of all that it spans on all ranks together
  Int elements = 1;                  ///< of one rank
  std::vector<Int> shape{};          ///< of one rank
  std::vector<Int> strides{};        ///< elements from one to the next of each dim; none: dense
  PerAxis rank_strides{};            ///< bytes that it moves for each index on an axis; not 0
};

struct Op {
  Int id;
  const Json *json, *body;  ///< its body by kind
  std::string kind, does;   ///< which kernel, collective or copy
  Index stream;
  Index event;  ///< of a record or a wait
  std::vector<Operand> operands;
  std::map<std::string, Json>
      attributes;  ///< of a kernel; with its name where it has steps by rank

  /// A whole number, or 0.
  [[nodiscard]] Int attribute(const char* name) const {
    const auto found = attributes.find(name);
    return found == attributes.end() ? 0 : found->second.get<Int>();
  }

  [[nodiscard]] std::string place() const {
    return fmt::format("op {} ({})", json->at("id").dump(), json->at("name").get<std::string>());
  }
};

/// Repetitions of a segment that are looked at where each one is as the one before.
constexpr Int kRepetitions = 2;

/// One run of an op. Two steps are looked at, with repeated segments twice: what is ordered there
/// is ordered in every later one, as each wait then gets the same record, one step on. All
/// repetitions are looked at where ops use other instances, or work on other microbatches, from one
/// to the next, and in plans of several classes.
struct Instance {
  const Op* op;
  Int step, repetition;  ///< repetition: of any segment, counted over both steps
  Int run;               ///< of a list of ops: the segment's own, or those of a pass that it calls
  Int segment, list;
};

/// The instances of a buffer or an event, which ops use in rotation.
struct Turns {
  Int count = 1;
  Index further = 0;  ///< where those after the first are
};
/// The number of an instance, for a microbatch of the step, counted from 0. Ops before the first
/// use the last ones.
inline Int turn_of(Int microbatch, Int count) {
  const Int rest = microbatch % count;
  return rest < 0 ? rest + count : rest;
}

using Plan = std::vector<Instance>;  ///< in host order

using Names = std::set<std::string>;
using Axes = std::vector<std::string>;

/// Kernels that move gradients or clear them, and make none.
inline const Names kMovers{"accumulate", "cast", "sum_ranks", "zero_padding"};

/// Axes of the dense mesh and of the expert mesh, outermost first.
inline constexpr const char* kStages = "pp";
inline const Axes kDenseOrder{kStages, "dp_outer", "dp_shard", "cp", "tp"};
inline const Axes kDealtOrder{kStages, "expt_dp_outer", "expt_dp", "ep"};

/// Elements of a group.
struct Parameter {
  std::string role;
  Int begin, end;
  std::vector<Int> shape;
};
struct Group {
  Int unit, elements;  ///< the unit's position in the model
  bool trains;
  bool of_experts = false;  ///< parameters of experts that are divided over the ranks of ep
  Axes cut;                 ///< what kind 1, 2, ... is cut on
  PerAxis reduce{};         ///< 1 for each axis to sum over once
  std::map<Int, Parameter> parameters{};  ///< by first element
  std::string optimizer{};                ///< of one that trains
  std::optional<Int> tp_dim{};            ///< along which ranks of tp divide its parameters
  bool fp8 = false;  ///< one matrix: its weights are the main ones, FP8 GEMMs read gathered casts
};
/// The contents that a buffer states: elements of groups, or what the host writes or reads.
struct Home {
  std::string kind{}, name{};                   ///< name: which port, or which state
  std::vector<std::pair<Index, Int>> groups{};  ///< with the byte where each begins
  Int cuts = 0;                                 ///< how many of the groups' cuts it is a slice by
  Int block = 1;                                ///< elements that have one value in it
  std::string distributed_over{};               ///< axis along which each rank has one whole group
  std::string unsummed_over{};  ///< or axis whose ranks' contributions to a gradient are here
};
/// The port with the largest magnitudes of delayed scaling.
inline constexpr const char* kHistory = "amax_history";
inline bool is_history(const Home& home) { return home.kind == "port" && home.name == kHistory; }
/// Weights, or their casts to FP8, which each run of a plan makes anew.
inline bool holds_weights(const Home& home) {
  return home.kind == "parameter" || home.kind == "cast_parameter";
}
/// Elements of a group on ranks of a kind and above: kind 0 may own them or not, 1 owns their slice
/// along the first axis of the group's cut, 2 also its part of that along the second, and so on.
struct Spot {
  Index group = kNone;
  Int kind = 0, begin = 0, end = 0;
  friend bool operator==(const Spot&, const Spot&) = default;
};

/// State of an optimizer, by name: its dtype, and how many elements share one value.
struct Kept {
  std::string dtype;
  Int block = 1;
};
/// By the configuration. Refuses an optimizer that this checker does not know.
std::map<std::string, Kept> kept_states(const Json& config, const std::string& optimizer);

struct PlanView {
  const Json& json;       ///< of one class
  Int classes = 1;        ///< of the job
  bool rotates = false;   ///< repetitions of a segment differ
  Int stage = 0;          ///< which of the classes, along kStages
  PerAxis mesh{};         ///< ranks of each axis that has several
  Axes order{};           ///< of the axes of both grids, outermost first
  PerAxis dense{};        ///< ranks of each axis on which ranks have other tokens
  PerAxis expert_grid{};  ///< the same for the expert mesh of the same ranks; often empty
  std::map<std::string, std::map<Int, Index>> ids{};  ///< positions by list and id
  std::map<std::string, std::vector<Turns>> turns{};  ///< by list, of each that the plan names
  std::vector<Operand> buffers{};                     ///< all bytes of each
  std::deque<Op> ops{};
  std::vector<Plan> plans{};
  std::vector<Group> groups{};
  std::vector<Home> homes{};  ///< by buffer

  [[nodiscard]] Int ranks_on(const std::string& axis) const {
    const auto found = mesh.find(axis);
    return found == mesh.end() ? 1 : found->second;
  }
  /// Whether a buffer of the class has elements of a group.
  [[nodiscard]] bool holds(Index group) const {
    return std::ranges::any_of(homes, [&](const Home& home) {
      return std::ranges::any_of(home.groups, [&](const auto& of) { return of.first == group; });
    });
  }
  /// The position in a list of what an object's field names.
  [[nodiscard]] Index at(const char* list, const Json& object, const char* key) const {
    return ids.at(list).at(object.at(key));
  }
  /// The same, of the instance that works on a microbatch.
  [[nodiscard]] Index instance_at(const char* list, const Json& object, const char* key,
                                  Int microbatch) const;
  /// The operand of a copy whose memory the host fills or reads, at a port; or null.
  [[nodiscard]] const Operand* port_of(const Op& copy) const {
    if (copy.does == "d2d") return nullptr;
    const Operand& on_host = copy.operands.at(copy.does == "h2d" ? 0 : 1);
    return homes.at(on_host.buffer).kind == "port" ? &on_host : nullptr;
  }
  /// Whether these axes are in the order in which the members of a communicator over them count:
  /// outermost first. Only then a cut along them, in this order, gives each member its own part.
  [[nodiscard]] bool counts_ranks(const Axes& axes) const {
    auto next = order.begin();
    for (const std::string& axis : axes) next = std::find(next, order.end(), axis);
    return axes.empty() || next != order.end();
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

/// A document for each class of ranks, as a plan of this class alone has it (read_plan.cpp).
std::deque<Json> documents_of(const Json& document);
/// Reads such a document, of a job of that number of classes. Further instances of buffers and
/// events are added to the document, which must outlive the view.
PlanView read_plan(Json& document, Int classes);
/// Reads an op that works on that microbatch of its step, counted from 0.
const Op* read_op(PlanView& view, const Json& json, Int microbatch);
/// Reads the plans, with the runs of their ops (read_runs.cpp).
void read_runs(PlanView& view);
/// Reads groups and homes, and checks them against the sizes of buffers (places.cpp).
void read_places(PlanView& view);
/// Parts that the first `kind` cuts of a group make.
Int parts_of(const PlanView& view, const Group& group, Int kind);
/// Nowhere (no elements) if it is neither a slice of a group nor a range of its elements.
Spot locate(const PlanView& view, const Operand& operand);

/// Refuses an op that names another group than its own, and an update that names none.
void check_group(const PlanView& view, const Op& op);
/// Refuses operands in the same bytes of which the op writes some, unless it is a collective and
/// one is the rank's own part of the other.
void check_apart(const PlanView& view, const Op& op);
/// Refuses a kernel that names another unit than that of the groups it makes or reads.
void check_unit(const PlanView& view, const Op& op);
/// Refuses a step of the model that has other operands than the gradient it makes where gradients
/// are kept.
void check_gradient_memory(const PlanView& view, const Op& op);

/// Whether an op sends to another class, or receives from it.
inline bool is_transfer(const Op& op) { return op.does == "send" || op.does == "recv"; }
/// Where messages go: a communicator, then the stages that send and receive.
using Route = std::tuple<Index, Int, Int>;
/// The route of a transfer, which must be to another stage (meetings.cpp).
Route route_of(const PlanView& view, const Op& transfer);

/// Each takes plans of the view, and refuses or adds what it looked at to the figures.
void check_races(const PlanView& view, const Plan& plan, const Json& clocks, CheckedPlan& figures);
/// The views are those of all classes, in the order of the document.
void check_values(const std::deque<PlanView>& views, CheckedPlan& figures);
/// Refuses a job whose classes do not reach the end of plan `p` together.
void check_meetings(const std::deque<PlanView>& views, Index p);

}  // namespace mfsdp::checker
