// The gradient ledger of one plan, in symbols: what each element of a group holds, as a sum of
// contributions. Ranks of pure data parallelism run one plan, so an element is looked at on three
// kinds of ranks: 0 may own it or not, 1 owns its slice of dp_shard, 2 also its part of that along
// dp_outer. An operand that is a slice touches its elements on the ranks that own it. What is known
// of an element holds on ranks of some kind and above; a sum over an axis is followed only where
// that is all who take part, so that it is the sum of every rank.
//
// What to expect is counted on the way forward: each use of an element by a kernel that is to give
// a gradient. Where the norm or an update reads an element it holds each use of this step once,
// summed once over each axis, and nothing else; padding, which nothing uses, holds nothing.
#include <optional>

#include "verify/checker/plan_view.hpp"

namespace mfsdp::checker {
namespace {

using Names = std::set<std::string>;
constexpr std::array<const char*, 3> kAxes{"", "dp_shard", "dp_outer"};  ///< what a kind is cut on

/// A sum of contributions, by pass and op that made them, with their coefficients.
struct Held {
  std::map<std::pair<Int, Int>, Int> terms{{{-1, -1}, 1}};  ///< at first garbage
  PerAxis sums{};                                           ///< times that it was summed over axes
  int kind = 0;                                             ///< of ranks that hold it, and above
  friend bool operator==(const Held&, const Held&) = default;
};

using Contents = std::map<Int, Held>;  ///< of a buffer, by first element

struct Group {
  Int unit, elements, offset;
  bool trains;
  std::map<Int, std::map<Int, Int>> uses{};  ///< by first element and pass, of this step
};
/// Which elements a buffer holds.
struct Home {
  std::vector<int> groups;
  int kind;
  bool gathered;  ///< the groups at their offsets
};
/// Elements of a group on ranks of a kind and above.
struct Spot {
  int group = -1, kind = 0;
  Int begin = 0, end = 0;
  friend bool operator==(const Spot&, const Spot&) = default;
};

Int attribute(const Op& op, const char* name) {
  for (const Json& entry : op.body->value("attributes", Json::array()))
    if (entry.at("name") == name) return entry.at("value");
  return 0;
}

class Ledger {
 public:
  Ledger(const PlanView& view, CheckedPlan& figures) : view_(view), figures_(figures) {
    for (const Json& json : view.json.at("groups"))
      groups_.push_back({view.at("units", json, "unit"), json.at("elements"),
                         json.at("full_offset"), json.value("requires_grad", false)});
    for (const Operand& whole : view.buffers) find_home(whole.buffer, view.json_of(whole.buffer));
  }

  void run(const std::vector<Instance>& plan) {
    for (const Instance& instance : plan) {
      if (std::exchange(step_, instance.step) != instance.step)
        for (Group& group : groups_) group.uses = {{0, {}}, {group.elements, {}}};
      follow(*instance.op, instance.pass);
    }
    for (int g = 0; g < std::ssize(groups_) && !updates_.empty(); ++g)
      if (groups_[g].trains && updates_[g] != 2)
        refuse("group {}: is updated {} times in two steps", g, updates_[g]);
  }

 private:
  /// The n-th buffer of a category in a unit is that of its n-th group, or of its n-th trainable
  /// one; full gradients are of the first, gathered weights of all.
  void find_home(int b, const Json& json) {
    const std::string category = json.at("category");
    const bool gradients = category == "main_grad" || category == "unsharded_grad";
    const bool gathered = category == "unsharded_weight";
    if ((!gradients && !gathered && category != "model_weight") || !json.contains("unit")) return;
    const int unit = view_.at("units", json, "unit");
    std::vector<int> groups;
    for (int g = 0; g < std::ssize(groups_); ++g)
      if (groups_[g].unit == unit && (groups_[g].trains || !gradients)) groups.push_back(g);
    const std::size_t n = category.starts_with("unsharded") ? 0 : seen_[{unit, category}]++;
    if (n >= groups.size()) return;
    Home& home = homes_[b] = {gathered ? groups : std::vector{groups[n]}, 0, gathered};
    const Int elements = groups_[home.groups[0]].elements;
    while (!gathered &&
           times(ranks(home.kind), json.at("size")) != times(elements, size_of(json.at("dtype"))))
      if (++home.kind == 3)
        refuse("buffer {}: holds no slice of its group", json.at("name").dump());
    if (gradients) held_[b] = {{0, {}}, {elements, {}}};
  }
  [[nodiscard]] Int ranks(int kind) const {
    return kind == 0 ? 1 : times(ranks(kind - 1), view_.mesh.at(kAxes[kind]));
  }

  [[nodiscard]] std::optional<Spot> locate(const Operand& operand) const {
    const auto found = homes_.find(operand.buffer);
    const Json& dtype = view_.json_of(operand.buffer).at("dtype");
    if (found == homes_.end() || !operand.dense || operand.dtype != dtype || operand.elements == 0)
      return {};
    const Home& home = found->second;
    int g = home.groups[0];
    for (const int other : home.groups)
      if (groups_[other].offset <= operand.offset && groups_[other].offset >= groups_[g].offset)
        g = other;
    const Int size = size_of(operand.dtype);
    const Int byte = operand.offset - (home.gathered ? groups_[g].offset : 0);
    const Int end = byte / size + operand.elements;
    PerAxis strides;
    for (int kind = home.kind; kind < 3; ++kind) {
      if (kind > home.kind && view_.mesh.at(kAxes[kind]) > 1)
        strides[kAxes[kind]] = groups_[g].elements / ranks(kind) * size;
      if (byte == 0 && times(end, ranks(kind)) == groups_[g].elements && operand.strides == strides)
        return Spot{g, kind, 0, groups_[g].elements};
    }
    if (home.kind > 0 || !operand.strides.empty() || end > groups_[g].elements || byte % size != 0)
      return {};
    return Spot{g, 0, byte / size, end};
  }

  /// The meaning of kernels, as core/recipe has it.
  void follow(const Op& op, Int pass) {
    static const Names users{"embedding_forward", "qk_norm_rope_forward", "rms_norm_forward"};
    static const Names makers{"bias_grad", "embedding_backward", "norm_weight_grad"};
    static const Names movers{"accumulate", "all_reduce", "cast", "d2d", "reduce_scatter"};
    const Int gemm = op.does == "gemm" ? attribute(op, "kind") : -1;  // 0 forward, 2 gradient
    const bool uses = (gemm == 0 || users.contains(op.does)) && op.json->at("phase") != "recompute";
    const bool makes = gemm == 2 || makers.contains(op.does);
    const bool updates = op.does == "adamw" || op.does == "sgd";
    const bool adds = attribute(op, "beta") != 0;
    for (const Operand& operand : op.operands) {
      const bool home = homes_.contains(operand.buffer);
      const std::optional<Spot> spot = locate(operand);
      if (updates && home && spot != locate(op.operands[0]))
        refuse("{}: its operands are not one slice", op.place());
      if (uses && spot && !operand.writes)
        for (auto* used : cut_out(groups_[spot->group].uses, spot->begin, spot->end))
          ++(*used)[pass];
      if (makes && operand.role == "weight_grad" && !home)  // a sum that is moved later
        held_.try_emplace(operand.buffer, Contents{{0, {}}, {kMost, {}}});
      const auto held = held_.find(operand.buffer);
      if (held == held_.end() || op.kind == "release") continue;
      const Spot at =
          home && spot ? *spot : Spot{-1, 0, operand.offset, operand.offset + operand.elements};
      if (op.kind == "acquire")
        held->second = {{0, {}}, {kMost, {}}};
      else if (home && !spot && (operand.writes || updates))
        refuse("{}: '{}' is no slice of its gradient", op.place(), operand.role);
      else if (operand.writes && (makes || op.does == "zero_padding"))
        put(held->second, at,
            makes ? Held{{{{pass, op.id}, 1}}, {}, at.kind} : Held{{}, {}, at.kind}, adds);
      else if (operand.writes && movers.contains(op.does))
        move(op, held->second, at, adds);
      else if (operand.writes)
        refuse("{}: writes a gradient and makes none", op.place());
      else if (updates || op.does == "norm_partial")
        judge(op, held->second, at);
      updates_[at.group] += updates ? 1 : 0;
    }
  }

  static void put(Contents& into, const Spot& at, const Held& what, bool adds) {
    for (Held* held : cut_out(into, at.begin, at.end)) {
      if (!adds) *held = {{}, what.sums, 0};
      for (const auto& [term, coefficient] : what.terms) held->terms[term] += coefficient;
      if (held->sums != what.sums) held->terms[{-1, -1}] = 1;
      held->kind = std::max(held->kind, what.kind);
    }
  }

  /// Copies or adds the same elements; a collective sums them, and may leave each rank its slice.
  void move(const Op& op, Contents& into, const Spot& to, bool adds) {
    const Operand& input = *std::ranges::find(op.operands, "input", &Operand::role);
    const bool home = homes_.contains(input.buffer);
    const Spot loose{to.group, 0, input.offset, input.offset + input.elements};
    const Spot from = home ? locate(input).value_or(Spot{}) : loose;
    Names axes, cut;
    if (op.kind == "collective")
      axes = view_.json.at("communicators")[view_.at("communicators", *op.body, "communicator")].at(
          "axes");
    std::erase_if(axes, [&](const std::string& axis) { return view_.mesh.at(axis) == 1; });
    for (int kind = 1; kind <= to.kind; ++kind)
      if (kind > from.kind ? view_.mesh.at(kAxes[kind]) > 1 : axes.contains(kAxes[kind]))
        cut.insert(kAxes[kind]);
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
      moved.kind = to.kind;
      put(into, {to.group, to.kind, i->first + shift, std::next(i)->first + shift}, moved, adds);
    }
  }

  void judge(const Op& op, Contents& held, const Spot& spot) {
    const auto& uses = groups_.at(spot.group).uses;
    for (const auto& [at, used] : uses) cut_out(held, std::max(at, spot.begin), spot.end);
    PerAxis once;
    for (const auto& [axis, ranks] : view_.mesh)
      if (ranks > 1) once[axis] = 1;
    for (auto i = held.find(spot.begin); i->first < spot.end; ++i, ++figures_.gradients) {
      std::map<Int, Int> found;
      for (const auto& [term, times] : i->second.terms) found[term.first] += times == 1 ? 1 : kMost;
      if (found != std::prev(uses.upper_bound(i->first))->second ||
          (!found.empty() && i->second.sums != once) || i->second.kind > spot.kind)
        refuse("{}: element {} of group {} does not hold each microbatch of each rank once",
               op.place(), i->first, spot.group);
    }
  }

  const PlanView& view_;
  CheckedPlan& figures_;
  std::vector<Group> groups_{};
  std::map<std::pair<int, std::string>, std::size_t> seen_{};  ///< buffers, by unit and category
  std::map<int, Home> homes_{};                                ///< by buffer
  std::map<int, Contents> held_{};                             ///< by buffer
  std::map<int, Int> updates_{};                               ///< by group
  Int step_ = -1;
};

}  // namespace

void check_ledger(const PlanView& view, const std::vector<Instance>& plan, CheckedPlan& figures) {
  Ledger(view, figures).run(plan);
}

}  // namespace mfsdp::checker
