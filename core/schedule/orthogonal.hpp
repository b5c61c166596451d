// Muon's part of a step: momentum, the orthogonalisation of whole matrices, and the update.
//
// A round has N blocks of equal layout, where N ranks share a group's state. Every rank has a slice
// of the direction of each block. After an all_to_all rank i has the whole direction of block i and
// orthogonalises each matrix; a second all_to_all returns the slices:
//
//   compute          momentum 1 | Newton-Schulz 0         | update 0, refresh | momentum 2 | ...
//   reduce_scatter              | all_to_all in of 1
//   all_gather                                            | all_to_all out of 0
//
//   slices   rank 0: | block 0, slice 0 | block 1, slice 0 |      whole   rank 0: | block 0 |
//            rank 1: | block 0, slice 1 | block 1, slice 1 |              rank 1: | block 1 |
//
// In a round of fewer blocks the remaining ranks compute zeros. If every rank has the whole state,
// each orthogonalises all blocks, one per round, and nothing is exchanged. If state is sharded
// along two axes, slices are first gathered along the second, then blocks are distributed over the
// first.
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
  /// `units`: in the order of their updates; units without an orthogonalised group are left out.
  /// `dealt`: rounds of expert-parallel groups, over the ranks that have the same experts; else of
  /// all other groups.
  OrthogonalRounds(Emitter& emitter, const State& state, const std::vector<std::size_t>& units,
                   bool dealt = false);

  [[nodiscard]] std::size_t count() const { return rounds_.size(); }
  /// Units of a round.
  [[nodiscard]] const std::vector<std::size_t>& units(std::size_t round) const {
    return rounds_[round].units;
  }

  /// Momentum, and the exchange that brings whole directions to their ranks. `ready(unit)` is
  /// called before a unit's gradient is read.
  void begin(std::size_t round, const std::function<void(std::size_t)>& ready);
  /// Newton-Schulz, and the exchange that returns slices.
  void orthogonalise(std::size_t round);
  /// Compute waits for the slices.
  void await(std::size_t round);
  /// Releases the round's buffers, after its updates.
  void end(std::size_t round);

  /// This rank's slice of the unit's orthogonalised direction.
  [[nodiscard]] Region direction(std::size_t round, std::size_t unit) const;

 private:
  struct Round {
    std::vector<std::size_t> units;
    BufferId slices;
    BufferId whole;  ///< equal to the slices' where nothing is exchanged
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
  /// This rank's part of a block's direction in `slices`, sharded along these axes.
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
  std::vector<Axis> cut_;               ///< axes along which states are sharded
  const AxisTraffic* dealt_ = nullptr;  ///< axis over which blocks are distributed
  const AxisTraffic* inner_ = nullptr;  ///< axis along which slices are sharded further
  std::int64_t ranks_ = 1;              ///< of `dealt_`
  BufferId workspace_;
};

}  // namespace mfsdp::schedule
