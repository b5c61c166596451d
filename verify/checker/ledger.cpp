// The gradient ledger of one plan, in symbols: what each element of a group holds, as a sum of
// contributions. Ranks of pure data parallelism run one plan, so an element is looked at on several
// kinds of ranks: 0 may own it or not, 1 owns its slice along the first axis of the group's cut, 2
// also its part of that along the second, and so on. An operand that is a slice touches its
// elements on the ranks that own it. What is known of an element holds on ranks of some kind and
// above; a sum over an axis is followed only where that is all who take part, so that it is the sum
// of every rank.
//
// What to expect is counted on the way forward: each use of an element by a kernel that is to give
// a gradient. Where the norm or an update reads an element it holds each use of this step once,
// summed once over each axis, and nothing else; padding, which nothing uses, holds nothing.
#include "verify/checker/plan_view.hpp"

namespace mfsdp::checker {
namespace {

/// What ops do with parameters and gradients (core/recipe says what each computes; a GEMM by its
/// kind). Beside these, zero_padding clears, norm_partial reads.
using Names = std::set<std::string>;
using Axes = std::vector<std::string>;
const Names kUses{"embedding_forward", "gemm 0", "qk_norm_rope_forward", "rms_norm_forward"};
const Names kMakes{"bias_grad", "embedding_backward", "gemm 2", "norm_weight_grad"};
const Names kMoves{"accumulate", "all_reduce", "cast", "d2d", "reduce_scatter"};

/// Axes whose ranks work on other tokens.
const Names kDataAxes{"cp", "dp_outer", "dp_shard"};

/// A sum of contributions, by pass, op and unit that made them, with their coefficients.
struct Held {
  std::map<std::array<Int, 3>, Int> terms{{{-1, -1, -1}, 1}};  ///< at first garbage
  PerAxis sums{};                                              ///< times it was summed, by axis
  Int kind = 0;                                                ///< of ranks that hold it, and above
};
using Contents = std::map<Int, Held>;  ///< of a buffer, by first element

struct Group {
  Int unit, elements;
  bool trains;
  Axes cut;                                  ///< what kind 1, 2, ... is cut on
  PerAxis reduce{};                          ///< 1 for each axis to sum over once
  std::map<Int, std::map<Int, Int>> uses{};  ///< by first element and pass, of this step
};
/// Which elements a buffer holds.
struct Home {
  std::vector<std::pair<int, Int>> groups{};  ///< with the byte where each begins
  Int kind = 0;
};
/// Elements of a group on ranks of a kind and above.
struct Spot {
  Int group = -1, kind = 0, begin = 0, end = 0;
  friend bool operator==(const Spot&, const Spot&) = default;
};

Int attribute(const Op& op, const char* name) {
  for (const Json& entry : op.body->value("attributes", Json::array()))
    if (entry.at("name") == name) return entry.at("value");
  return 0;
}

class Ledger {
 public:
  Ledger(const PlanView& view, const Plan& plan, CheckedPlan& figures)
      : view_(view), figures_(figures) {
    for (const Json& json : view.json.at("groups")) read_group(json);
    for (const Json& buffer : view.json.at("buffers")) find_home(buffer, homes_.emplace_back());
    Int step = -1;
    for (const Instance& instance : plan) {
      if (std::exchange(step, instance.step) != instance.step)
        for (Group& group : groups_) group.uses = {{0, {}}, {group.elements, {}}};
      follow(*instance.op, instance.pass);
    }
    for (int g = 0; g < std::ssize(groups_) && !updates_.empty(); ++g)
      if (groups_[g].trains && updates_[g] != 2)
        refuse("group {}: is updated {} times in two steps", g, updates_[g]);
  }

 private:
  void read_group(const Json& json) {
    Group group{view_.at("units", json, "unit"), json.at("elements"),
                json.value("requires_grad", false), json.value("cut", Axes{})};
    for (const auto& [axis, ranks] : view_.mesh)
      if (kDataAxes.contains(axis)) group.reduce[axis] = 1;
    const Axes reduce = json.value("reduce", Axes{});
    if (group.elements % ranks(group, std::ssize(group.cut)) != 0 ||
        reduce.size() != group.reduce.size() ||
        !std::ranges::all_of(reduce, [&](const auto& axis) { return group.reduce[axis] == 1; }))
      refuse("group {}: is cut unevenly, or summed over other axes", groups_.size());
    groups_.push_back(std::move(group));
  }

  /// What the buffer says that it holds, where its size bears that out.
  void find_home(const Json& json, Home& home) {
    const std::string kind = json.contains("holds") ? json.at("holds").at("kind") : "port";
    if (kind == "port") return;
    Axes cut;
    for (const Json& on : json.at("holds").value("placement", Json::array()))
      cut.push_back(on.at("kind") == "flat" ? on.at("axis") : Json("?"));
    home.kind = std::ssize(cut);
    for (const Json& held : json.at("holds").at("groups")) {
      const auto& [g, offset] =
          home.groups.emplace_back(view_.at("groups", held, "group"), held.at("offset"));
      const Group& group = groups_.at(g);
      const Int bytes = times(group.elements / ranks(group, home.kind), size_of(json.at("dtype")));
      const Int rest = json.at("size").get<Int>() - plus(offset, bytes);
      // Gathered weights may be aligned to more than they have.
      const bool fits = kind == "parameter" && !json.contains("persistent") ? rest >= 0 : rest == 0;
      if (!fits || cut.size() > group.cut.size() || (kind != "parameter" && !group.trains) ||
          !std::equal(cut.begin(), cut.end(), group.cut.begin()))
        refuse("buffer {}: holds no slice", json.at("name").dump());
      if (kind == "gradient")
        held_[static_cast<int>(homes_.size()) - 1] = {{0, {}}, {group.elements, {}}};
    }
  }
  /// Parts that the first `kind` cuts of a group make.
  [[nodiscard]] Int ranks(const Group& group, Int kind) const {
    Int parts = 1;
    for (const auto& axis : group.cut)
      if (kind-- > 0) parts = times(parts, view_.mesh.at(axis));
    return parts;
  }

  /// Nowhere (no elements) if it is neither a slice of a group nor a range of its elements.
  [[nodiscard]] Spot locate(const Operand& operand) const {
    const Home& home = homes_[operand.buffer];
    if (home.groups.empty() || !operand.dense ||
        view_.json.at("buffers")[operand.buffer].at("dtype") != Json(operand.dtype))
      return {};
    auto [g, start] = home.groups[0];
    for (const auto& [other, at] : home.groups)
      if (at <= operand.offset && at >= start) std::tie(g, start) = std::pair(other, at);
    const Group& group = groups_[g];
    const Int size = size_of(operand.dtype);
    const Int byte = operand.offset - start;
    const Int end = byte / size + operand.elements;
    PerAxis strides;
    for (Int kind = home.kind; kind <= std::ssize(group.cut); ++kind) {
      const Int elements = group.elements / ranks(group, kind);
      if (kind > home.kind)
        strides[group.cut[static_cast<std::size_t>(kind - 1)]] = elements * size;
      if (byte == 0 && end == elements && operand.strides == strides)
        return {g, kind, 0, group.elements};
    }
    const bool inside = home.kind == 0 && operand.strides.empty() && end <= group.elements;
    return inside && byte % size == 0 ? Spot{g, 0, byte / size, end} : Spot{};
  }

  void follow(const Op& op, Int pass) {
    const std::string gemm = op.does == "gemm" ? fmt::format(" {}", attribute(op, "kind")) : "";
    const bool uses = kUses.contains(op.does + gemm) && op.json->at("phase") != "recompute";
    const bool makes = kMakes.contains(op.does + gemm);
    const bool updates = op.does == "update";
    std::set<int> seen;
    const Int unit = op.json->contains("unit") ? view_.at("units", *op.json, "unit") : -1;
    for (const Operand& operand : op.operands) {
      const bool home = !homes_[operand.buffer].groups.empty();
      Spot spot = locate(operand);
      if (updates && home &&
          (spot != locate(op.operands[0]) || !seen.insert(operand.buffer).second))
        refuse("{}: its operands are not one slice", op.place());
      if (uses && !operand.writes && spot.group >= 0 &&
          (unit < 0 || unit == groups_[spot.group].unit))
        for (auto* used : cut_out(groups_[spot.group].uses, spot.begin, spot.end)) ++(*used)[pass];
      if (makes && operand.role == "weight_grad" && !home)  // is moved later
        held_.try_emplace(operand.buffer, Contents{{0, {}}, {kMost, {}}});
      const auto held = held_.find(operand.buffer);
      if (held == held_.end() || op.kind == "release") continue;
      if (!home) spot = {-1, 0, operand.offset, operand.offset + operand.elements};
      if (op.kind == "acquire")
        held->second = {{0, {}}, {kMost, {}}};
      else if (!operand.writes && (updates || op.does == "norm_partial"))
        judge(op, held->second, spot);
      else if (operand.writes && spot.begin < spot.end && (makes || op.does == "zero_padding"))
        put(held->second, spot, makes ? Held{{{{pass, op.id, unit}, 1}}} : Held{.terms = {}},
            attribute(op, "beta") != 0);
      else if (operand.writes && spot.begin < spot.end && kMoves.contains(op.does))
        move(op, held->second, spot);
      else if (operand.writes)
        refuse("{}: '{}' is no gradient that it makes", op.place(), operand.role);
      updates_[spot.group] += updates ? 1 : 0;
    }
  }

  static void put(Contents& into, const Spot& at, const Held& what, bool adds) {
    for (Held* held : cut_out(into, at.begin, at.end)) {
      if (!adds) *held = {{}, what.sums, 0};
      for (const auto& [term, sum] : what.terms) held->terms[term] = plus(held->terms[term], sum);
      if (held->sums != what.sums) held->terms[{-1, -1, -1}] = 1;
      held->kind = std::max(held->kind, at.kind);
    }
  }

  /// Copies or adds the same elements; a collective sums them, and may leave each rank its slice.
  void move(const Op& op, Contents& into, const Spot& to) {
    const Operand& input = *std::ranges::find(op.operands, "input", &Operand::role);
    const bool home = !homes_[input.buffer].groups.empty();
    const Axes cuts = to.group < 0 ? Axes{} : groups_[to.group].cut;
    const Spot loose{to.group, 0, input.offset, input.offset + input.elements};
    const Spot from = home ? locate(input) : loose;
    Names axes, cut;
    if (op.kind == "collective") axes = view_.communicator_of(op).at("axes");
    std::erase_if(axes, [&](const std::string& axis) { return !view_.mesh.contains(axis); });
    for (Int kind = 1; kind <= to.kind; ++kind)
      if (const auto& axis = cuts[static_cast<std::size_t>(kind - 1)];
          kind > from.kind || axes.contains(axis))
        cut.insert(axis);
    const Int shift = home ? 0 : to.begin - from.begin;
    if (from.begin >= from.end || from.group != to.group || from.kind > to.kind ||
        from.begin + shift != to.begin || from.end + shift != to.end ||
        cut != (op.does == "reduce_scatter" ? axes : Names{}))
      refuse("{}: moves a gradient to where other elements lie", op.place());
    Contents source = held_.at(input.buffer);  // a copy: it may be where it goes
    cut_out(source, from.begin, from.end);
    for (auto i = source.find(from.begin); i->first < from.end; ++i) {
      Held moved = i->second;
      if (moved.kind > from.kind) refuse("{}: moves what not all of its ranks hold", op.place());
      for (const std::string& axis : axes) ++moved.sums[axis];
      put(into, {to.group, to.kind, i->first + shift, std::next(i)->first + shift}, moved,
          attribute(op, "beta") != 0);
    }
  }

  void judge(const Op& op, Contents& held, const Spot& spot) {
    if (spot.group < 0) refuse("{}: reads no slice of a gradient", op.place());
    const auto& [unit, elements, trains, group_cut, reduce, uses] = groups_[spot.group];
    for (const auto& [at, used] : uses) cut_out(held, std::max(at, spot.begin), spot.end);
    for (auto i = held.find(spot.begin); i->first < spot.end; ++i, ++figures_.gradients) {
      std::map<Int, Int> found;
      for (const auto& [term, sum] : i->second.terms)
        found[term[0]] = sum == 1 && (term[2] < 0 || term[2] == unit) ? found[term[0]] + 1 : -kMost;
      if (found != std::prev(uses.upper_bound(i->first))->second ||
          (!found.empty() && i->second.sums != reduce) || i->second.kind > spot.kind)
        refuse("{}: element {} of {} is not as it should be", op.place(), i->first, spot.group);
    }
  }

  const PlanView& view_;
  CheckedPlan& figures_;
  std::vector<Group> groups_{};
  std::vector<Home> homes_{};       ///< by buffer
  std::map<int, Contents> held_{};  ///< by buffer
  std::map<Int, Int> updates_{};    ///< by group
};

}  // namespace

void check_ledger(const PlanView& view, const Plan& plan, CheckedPlan& figures) {
  Ledger(view, plan, figures);
}

}  // namespace mfsdp::checker
