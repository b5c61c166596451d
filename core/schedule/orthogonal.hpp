// Muon's share of a step: momentum, the orthogonalisation of whole matrices, and the update.
//
// Blocks are taken in rounds of as many as ranks share a group's state, N, and are laid out alike.
// Of each block of a round every rank has a slice of the direction; after an all_to_all the i-th
// rank has all of the i-th block's, orthogonalises each matrix, and another one brings slices back:
//
//   compute          momentum 1 | Newton-Schulz 0         | update 0, refresh | momentum 2 | ...
//   reduce_scatter              | all_to_all in of 1
//   all_gather                                            | all_to_all out of 0 (under others'
//   compute)
//
//   slices   rank 0: | block 0, slice 0 | block 1, slice 0 |      whole   rank 0: | block 0 |
//            rank 1: | block 0, slice 1 | block 1, slice 1 |              rank 1: | block 1 |
//
// In a round of fewer blocks ranks are left over, which work on zeros. Where every rank has the
// whole state, each orthogonalises all blocks, one a round, and nothing is exchanged. Where state
// is cut along two axes, blocks are dealt out along the first, and slices gathered along the second
// before.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/schedule/emitter.hpp"
#include "core/schedule/state.hpp"

namespace mfsdp::schedule {

class OrthogonalRounds {
 public:
  /// `units`: in the order of their updates; those without a group that is orthogonalised are left
  /// out. `dealt`: of experts that are dealt out, whose rounds are of the ranks that have the same
  /// ones; else of all other groups.
  OrthogonalRounds(Emitter& emitter, const State& state, const std::vector<std::size_t>& units,
                   bool dealt = false);

  [[nodiscard]] std::size_t count() const { return rounds_.size(); }
  /// Units of a round.
  [[nodiscard]] const std::vector<std::size_t>& units(std::size_t round) const {
    return rounds_[round].units;
  }

  /// Momentum, and what brings whole directions to their ranks. `ready(unit)` is called before a
  /// unit's gradient is read.
  void begin(std::size_t round, const std::function<void(std::size_t)>& ready);
  /// Newton-Schulz, and what brings slices back.
  void orthogonalise(std::size_t round);
  /// Compute waits for the slices.
  void await(std::size_t round);
  /// After the round's updates.
  void end(std::size_t round);

  /// This rank's slice of the unit's orthogonalised direction.
  [[nodiscard]] Region direction(std::size_t round, std::size_t unit) const;

 private:
  struct Round {
    std::vector<std::size_t> units;
    BufferId slices;
    BufferId whole;  ///< the same where nothing is exchanged
  };

  [[nodiscard]] const GroupState& group_of(std::size_t unit) const {
    return *state_.orthogonal_of(unit, of_experts_);
  }
  /// "muon.3.deal", or "muon.experts.3.deal".
  [[nodiscard]] std::string name_of(std::size_t round, std::string_view what) const;
  [[nodiscard]] std::string slots(const char* what) const;
  [[nodiscard]] bool are_alike(std::size_t a, std::size_t b) const;
  void make_workspace();
  void make_buffers(Round& round, std::size_t number);
  /// What this rank has of a block's direction among `slices` when it is cut along these axes.
  [[nodiscard]] Region place_of(const Round& round, std::size_t position,
                                const std::vector<Axis>& axes) const;
  void zero_rest(const Round& round, std::size_t number);
  void momentum(const Round& round, std::size_t position);
  void gather_inner(const Round& round, std::size_t number);
  void exchange(std::size_t number, bool in);
  void emit_matrix(const Round& round, std::size_t number, const GroupMatrix& matrix);

  Emitter& e_;
  const State& state_;
  const PlanConfig& config_;
  bool of_experts_;
  std::vector<Round> rounds_;
  std::vector<Axis> cut_;               ///< of states
  const AxisTraffic* dealt_ = nullptr;  ///< along which blocks are dealt out
  const AxisTraffic* inner_ = nullptr;  ///< along which slices are cut further
  std::int64_t ranks_ = 1;              ///< of `dealt_`
  BufferId workspace_;
};

}  // namespace mfsdp::schedule
