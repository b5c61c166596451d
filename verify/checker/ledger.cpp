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

struct Group {
  Int unit, elements, offset;
  bool trains;
  std::map<Int, std::map<Int, Int>> uses{};  ///< by first element and pass, of this step
};
struct Home {
  std::vector<int> groups;
  int kind;
};
/// Elements of a group on ranks of a kind and above.
struct Spot {
  int group, kind;
  Int begin, end;
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
                         json.at("full_offset"), json.contains("requires_grad")});
    for (int b = 0; b < std::ssize(view.buffers); ++b)
      if (view.buffers[b].json->contains("unit")) find_home(b, *view.buffers[b].json);
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
  /// one; full gradients and moments are of the first, gathered weights of all.
  void find_home(int b, const Json& json) {
    const std::string category = json.at("category");
    const bool weights = category == "model_weight" || category == "unsharded_weight";
    if (!weights &&
        !Names{"main_grad", "main_weight", "optimizer_state", "unsharded_grad"}.contains(category))
      return;
    std::vector<int> groups;
    const int unit = view_.at("units", json, "unit");
    for (int g = 0; g < std::ssize(groups_); ++g)
      if (groups_[g].unit == unit && (weights || groups_[g].trains)) groups.push_back(g);
    const bool one_each = category == "model_weight" || category.starts_with("main");
    const std::size_t n = one_each ? seen_[{unit, category}]++ : 0;
    if (n >= groups.size()) return;
    if (category != "unsharded_weight") groups = {groups[n]};
    int kind = 0;
    while (category != "unsharded_weight" &&
           times(ranks(kind), json.at("size")) !=
               times(groups_[groups[0]].elements, size_of(json.at("dtype"))))
      if (++kind == 3) refuse("buffer {}: holds no slice of its group", json.at("name").dump());
    homes_[b] = {groups, kind};
    if (category.ends_with("grad")) held_[b] = {{0, {}}, {groups_[groups[0]].elements, {}}};
  }
  [[nodiscard]] Int ranks(int kind) const {
    return kind == 0 ? 1 : times(ranks(kind - 1), view_.mesh.at(kAxes[kind]));
  }

  [[nodiscard]] std::optional<Spot> locate(const Operand& operand) const {
    const auto home = homes_.find(operand.buffer);
    const Json& buffer = *view_.buffers[operand.buffer].json;
    if (home == homes_.end() || !operand.dense || operand.dtype != buffer.at("dtype")) return {};
    int g = home->second.groups[0];
    const bool gathered = buffer.at("category") == "unsharded_weight";
    for (const int other : home->second.groups)
      if (gathered && groups_[other].offset <= operand.offset) g = other;
    const Int size = size_of(operand.dtype);
    const Int begin = (operand.offset - (gathered ? groups_[g].offset : 0)) / size;
    PerAxis strides;
    for (int kind = home->second.kind; kind < 3; ++kind) {
      if (kind > home->second.kind && view_.mesh.at(kAxes[kind]) > 1)
        strides[kAxes[kind]] = groups_[g].elements / ranks(kind) * size;
      if (begin == 0 && times(operand.elements, ranks(kind)) == groups_[g].elements &&
          operand.strides == strides)
        return Spot{g, kind, 0, groups_[g].elements};
    }
    const Int end = begin + operand.elements;
    if (home->second.kind > 0 || !operand.strides.empty() || end > groups_[g].elements) return {};
    return Spot{g, 0, begin, end};
  }

  /// The meaning of kernels, as core/recipe has it.
  void follow(const Op& op, Int pass) {
    static const Names users{"embedding_forward", "qk_norm_rope_forward", "rms_norm_forward"};
    static const Names makers{"bias_grad", "embedding_backward", "norm_weight_grad"};
    static const Names movers{"accumulate", "all_reduce", "cast", "d2d", "reduce_scatter"};
    const Int gemm =
        op.does == "gemm" ? attribute(op, "kind") : -1;  // 0 forward, 2 weight gradient
    const bool uses = (gemm == 0 || users.contains(op.does)) && op.json->at("phase") != "recompute";
    const bool makes = gemm == 2 || makers.contains(op.does);
    const bool update = op.does == "adamw" || op.does == "sgd";
    const bool adds = attribute(op, "beta") != 0;
    for (const Operand& operand : op.operands) {
      const std::optional<Spot> spot = locate(operand);
      auto held = held_.find(operand.buffer);
      if (uses && spot && !operand.writes)
        for (auto* used : cut_out(groups_[spot->group].uses, spot->begin, spot->end))
          ++(*used)[pass];
      if (update && homes_.contains(operand.buffer) && spot != locate(op.operands[0]))
        refuse("{}: its operands are not one slice", op.place());
      if (op.kind == "acquire" && held != held_.end()) {
        held->second = {{0, {}}, {kMost, {}}};
      } else if (makes && operand.role == "weight_grad" && !spot) {  // to be moved later
        auto& sum = held_.try_emplace(operand.buffer, std::map<Int, Held>{{0, {}}, {kMost, {}}})
                        .first->second;
        put(sum, operand.offset, operand.offset + operand.elements, {{{{pass, op.id}, 1}}}, adds);
      } else if (held != held_.end() &&
                 (operand.writes ? op.kind != "release" : update || op.does == "norm_partial")) {
        if (!spot) refuse("{}: '{}' is no slice of its gradient", op.place(), operand.role);
        if (update) ++updates_[spot->group];
        if (!operand.writes)
          judge(op, held->second, *spot);
        else if (makes)
          put(held->second, spot->begin, spot->end, {{{{pass, op.id}, 1}}, {}, spot->kind}, adds);
        else if (op.does == "zero_padding")
          put(held->second, spot->begin, spot->end, {{}, {}, spot->kind}, false);
        else if (movers.contains(op.does))
          move(op, held->second, *spot, adds);
        else
          refuse("{}: writes a gradient and makes none", op.place());
      }
    }
  }

  static void put(std::map<Int, Held>& into, Int begin, Int end, const Held& what, bool adds) {
    for (Held* held : cut_out(into, begin, end)) {
      if (!adds) *held = {{}, what.sums, 0};
      for (const auto& [term, coefficient] : what.terms) held->terms[term] += coefficient;
      if (held->sums != what.sums) held->terms[{-1, -1}] = 1;
      held->kind = std::max(held->kind, what.kind);
    }
  }

  /// Copies or adds the same elements; a collective sums them, and may leave each rank its slice.
  void move(const Op& op, std::map<Int, Held>& into, const Spot& to, bool adds) {
    const Operand& input = *std::ranges::find(op.operands, "input", &Operand::role);
    const std::optional<Spot> from = locate(input);
    Names axes, cut;
    if (op.kind == "collective")
      axes = view_.json.at("communicators")
                 .at(view_.at("communicators", *op.body, "communicator"))
                 .at("axes")
                 .get<Names>();
    std::erase_if(axes, [&](const std::string& axis) { return view_.mesh.at(axis) == 1; });
    for (int kind = 1; from && kind <= to.kind; ++kind)
      if (kind > from->kind ? view_.mesh.at(kAxes[kind]) > 1 : axes.contains(kAxes[kind]))
        cut.insert(kAxes[kind]);
    const bool same =
        from ? *from == Spot{to.group, from->kind, to.begin, to.end} && from->kind <= to.kind
             : input.elements == to.end - to.begin;
    if (!same || cut != (op.does == "reduce_scatter" ? axes : Names{}))
      refuse("{}: moves a gradient to where other elements lie", op.place());
    auto source = held_.at(input.buffer);  // a copy: it may be where it goes
    const Int shift = from ? 0 : to.begin - input.offset;
    cut_out(source, to.begin - shift, to.end - shift);
    for (auto i = source.find(to.begin - shift); i->first + shift < to.end; ++i) {
      Held moved = i->second;
      if (moved.kind > (from ? from->kind : 0))
        refuse("{}: moves what not all of its ranks hold", op.place());
      for (const std::string& axis : axes) ++moved.sums[axis];
      moved.kind = to.kind;
      put(into, i->first + shift, std::next(i)->first + shift, moved, adds);
    }
  }

  void judge(const Op& op, std::map<Int, Held>& held, const Spot& spot) {
    const auto& uses = groups_[spot.group].uses;
    for (const auto& [at, used] : uses)
      cut_out(held, std::clamp(at, spot.begin, spot.end), spot.end);
    cut_out(held, spot.begin, spot.end);
    PerAxis once;
    for (const auto& [axis, ranks] : view_.mesh)
      if (ranks > 1) once[axis] = 1;
    for (auto i = held.find(spot.begin); i->first < spot.end; ++i, ++figures_.gradients) {
      std::map<Int, Int> found;
      for (const auto& [term, coefficient] : i->second.terms)
        found[term.first] += coefficient == 1 ? 1 : kMost;
      const auto& expected = std::prev(uses.upper_bound(i->first))->second;
      if (found != expected || (!found.empty() && i->second.sums != once) ||
          i->second.kind > spot.kind)
        refuse("{}: element {} of group {} does not hold each of {} microbatches of each rank once",
               op.place(), i->first, spot.group, expected.size());
    }
  }

  const PlanView& view_;
  CheckedPlan& figures_;
  std::vector<Group> groups_{};
  std::map<std::pair<int, std::string>, std::size_t> seen_{};  ///< buffers, by unit and category
  std::map<int, Home> homes_{};                                ///< by buffer
  std::map<int, std::map<Int, Held>> held_{};                  ///< by buffer and first element
  std::map<int, Int> updates_{};                               ///< by group
  Int step_ = -1;
};

}  // namespace

void check_ledger(const PlanView& view, const std::vector<Instance>& plan, CheckedPlan& figures) {
  Ledger(view, figures).run(plan);
}

}  // namespace mfsdp::checker
