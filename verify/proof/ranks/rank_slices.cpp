#include "verify/proof/ranks/rank_slices.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/plan/instances.hpp"
#include "core/plan/mesh.hpp"
#include "verify/findings/place_names.hpp"
#include "verify/proof/ranks/members.hpp"

namespace mfsdp {
namespace {

/// Elements of a group that one rank touches.
struct Interval {
  Int128 begin = 0;
  Int128 end = 0;

  friend auto operator<=>(const Interval&, const Interval&) = default;
};

/// A region of every rank. A rank's index on the axes that the region moves along is looked at
/// once for each of these, not once for each of the mesh.
class RankIntervals {
 public:
  RankIntervals(const Region& region, const Mesh& mesh) : region_(region) {
    for (const auto* grid : {&mesh.dense, &mesh.experts})
      for (const MeshAxis& on : *grid)
        if (const std::int64_t step = region.strides[on.axis]; step != 0)
          moves_.push_back({.step = step, .ranks = mesh.stride(on.axis), .size = on.size});
  }

  [[nodiscard]] Interval of(std::int64_t rank) const {
    Int128 begin = region_.begin;
    for (const Move& move : moves_) begin += Int128{move.step} * (rank / move.ranks % move.size);
    return {.begin = begin, .end = begin + region_.count};
  }

 private:
  struct Move {
    std::int64_t step = 0;   ///< elements
    std::int64_t ranks = 1;  ///< from one index to the next
    std::int64_t size = 1;
  };

  const Region& region_;
  std::vector<Move> moves_;
};

std::string to_text(const Interval& interval) {
  return fmt::format("[{}, {})", static_cast<std::int64_t>(interval.begin),
                     static_cast<std::int64_t>(interval.end));
}

class RankSlices {
 public:
  RankSlices(const UnrolledPlan& unrolled, const Layouts& layouts, const FollowedOps& followed,
             FindingList& findings)
      : unrolled_(unrolled),
        mesh_(unrolled.program->config.mesh),
        layouts_(layouts),
        followed_(followed),
        findings_(findings) {
    for (const Communicator& communicator : unrolled.program->communicators)
      members_.emplace_back(Membership(communicator.axes, mesh_));
  }

  std::int64_t run() {
    std::size_t op_index = 0;
    for (const Op& op : ops_of(*unrolled_.plan)) {
      op_ = &op;
      if (unrolled_.ops[op_index].kind == OpKind::collective)
        check_collective(op_index);
      else if ((followed_.bits[op_index] & kUpdates) != 0)
        check_update(op_index);
      ++op_index;
    }
    return parameter_intervals_;
  }

 private:
  /// The fields of a collective that decide which elements its ranks exchange.
  struct Compared {
    std::size_t communicator = 0;
    bool splits = false;
    Region whole;
    Region part;

    friend bool operator==(const Compared&, const Compared&) = default;
  };

  void check_collective(std::size_t op_index) {
    const auto& collective = std::get<Collective>(op_->body);
    const FollowedOperand* input = followed_.find(op_index, collective.input);
    const FollowedOperand* output = followed_.find(op_index, collective.output);
    if (input == nullptr || output == nullptr || !input->located.exact || !output->located.exact ||
        input->located.group != output->located.group)
      return;  // gradients.hpp and weights.cpp report it
    const std::size_t communicator = unrolled_.ops[op_index].subject;
    const bool gathers = collective.kind == CollectiveKind::all_gather;
    const bool splits = collective.kind != CollectiveKind::all_reduce;
    const Region& whole = (gathers ? output : input)->located.region;
    const Region& part = (gathers ? input : output)->located.region;
    // Blocks are alike: what is right of one is right of all.
    Compared compared{.communicator = communicator, .splits = splits, .whole = whole, .part = part};
    if (std::ranges::find(right_, compared) != right_.end()) return;
    const RankIntervals wholes(whole, mesh_);
    const RankIntervals parts(part, mesh_);
    const Members& members = members_[communicator];
    for (std::size_t c = 0; c < members.count(); ++c) {
      const std::span<const std::uint32_t> ranks = members.ranks(c);
      const Interval all = wholes.of(ranks.front());
      Int128 covered = all.begin;
      for (const std::int64_t rank : ranks) {
        const Interval own = parts.of(rank);
        const Interval others = wholes.of(rank);
        if (others != all)
          return report(input->located.group, rank, others,
                        fmt::format("but rank {} touches {}", ranks.front(), to_text(all)));
        if (own.begin != covered || (!splits && own != all))
          return report(input->located.group, rank, own,
                        fmt::format("but its shard begins at element {}",
                                    static_cast<std::int64_t>(covered)));
        if (splits) covered = own.end;
      }
      if (splits && covered != all.end)
        return report(input->located.group, ranks.back(), {.begin = all.begin, .end = covered},
                      fmt::format("so that all ranks together do not cover {}", to_text(all)));
    }
    right_.push_back(std::move(compared));
  }

  void check_update(std::size_t op_index) {
    const auto operands = followed_.of(op_index);
    auto gradient = std::ranges::find(operands, true, &FollowedOperand::gradient);
    if (gradient == operands.end()) gradient = operands.begin();  // weights, beside directions
    if (gradient == operands.end() || !gradient->located.exact) return;  // updates.cpp reports it
    const std::uint32_t group = gradient->located.group;
    const GroupLayout& layout = layouts_.groups[group];
    const std::int64_t world = mesh_.world_size();
    std::vector<Interval> slices;
    slices.reserve(static_cast<std::size_t>(world));
    // By atom: elements that some rank updates, each as often as there are such ranks.
    std::vector<Int128> updated(layout.atoms.size(), 0);
    const RankIntervals intervals(gradient->located.region, mesh_);
    for (std::int64_t rank = 0; rank < world; ++rank) {
      slices.push_back(intervals.of(rank));
      add_parameters(layout, slices.back(), updated);
    }
    std::ranges::sort(slices);
    const auto apart = std::ranges::find_if(
        slices, [&](const Interval& slice) { return slice != slices.front(); });
    const std::int64_t times = apart - slices.begin();  // each element is updated
    Int128 covered = 0;
    for (std::size_t i = 0; i < slices.size(); i += static_cast<std::size_t>(times)) {
      const std::size_t last = std::min(i + static_cast<std::size_t>(times), slices.size()) - 1;
      if (slices[i].begin != covered || slices[last] != slices[i])
        return report(group, std::nullopt, slices[last],
                      fmt::format("but {} ranks update each element before {}", times,
                                  static_cast<std::int64_t>(covered)));
      covered = slices[i].end;
    }
    for (std::size_t a = 0; a < updated.size(); ++a) {
      const Atom& atom = layout.atoms[a];
      if (updated[a] != (Int128{atom.end} - atom.begin) * times)
        return report(
            group, std::nullopt, {.begin = atom.begin, .end = atom.end},
            fmt::format("'{}', but not exactly {} times each",
                        atom.parameter == nullptr ? "padding" : atom.parameter->name, times));
    }
  }

  /// Counts a rank's elements of each parameter.
  void add_parameters(const GroupLayout& layout, const Interval& slice,
                      std::vector<Int128>& updated) {
    const auto first = std::ranges::partition_point(
        layout.atoms, [&](const Atom& atom) { return atom.end <= slice.begin; });
    for (auto atom = first; atom != layout.atoms.end() && atom->begin < slice.end; ++atom) {
      updated[static_cast<std::size_t>(atom - layout.atoms.begin())] +=
          std::min(slice.end, Int128{atom->end}) - std::max(slice.begin, Int128{atom->begin});
      if (atom->parameter != nullptr) ++parameter_intervals_;
    }
  }

  void report(std::uint32_t group, std::optional<std::int64_t> rank, const Interval& interval,
              const std::string& what) {
    if (!findings_.wants("MF506")) return;
    findings_.add(
        {.rule = "MF506",
         .message = fmt::format("op {} ({}) on {} touches elements {} of '{}', {}", op_->id.value,
                                op_->name, rank ? fmt::format("rank {}", *rank) : "all ranks",
                                to_text(interval), layouts_.groups[group].name, what),
         .places = {place_in_plan(*unrolled_.plan, *op_)}});
  }

  const UnrolledPlan& unrolled_;
  const Mesh& mesh_;
  const Layouts& layouts_;
  const FollowedOps& followed_;
  FindingList& findings_;
  std::vector<Members> members_;
  std::vector<Compared> right_;
  const Op* op_ = nullptr;  // that is looked at
  std::int64_t parameter_intervals_ = 0;
};

}  // namespace

std::int64_t check_rank_slices(const UnrolledPlan& unrolled, const Layouts& layouts,
                               const FollowedOps& followed, FindingList& findings) {
  return RankSlices(unrolled, layouts, followed, findings).run();
}

}  // namespace mfsdp
