// The order of a parameter's elements where ranks of tp have parts of it: those of rank 0, then those
// of rank 1, and so on, each in the order in which the rank has them. So a rank's part is an interval.
//
//   qkv over 2 ranks        q0 q1 k0 k1 v0 v1        each q, k and v is a block of rows
//   in the order of ranks   q0 k0 v0 q1 k1 v1
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/model/model.hpp"
#include "core/plan/placement.hpp"
#include "core/plan/plan.hpp"

namespace mfsdp {

class ElementOrder {
 public:
  /// The parameter has its whole shape, and each of `ranks` ranks has an equal part of it;
  /// with one rank, or a parameter that each rank has whole, the parameter's own order.
  ElementOrder(const PlacedParameter& parameter, const ModelShape& model, std::int64_t ranks);

  /// Whether both orders are the same.
  friend bool operator==(const ElementOrder&, const ElementOrder&) = default;

  /// Calls visit(begin, place, count) for each run of an interval of this order: `count` elements
  /// from `begin` on lie in the parameter from element `place` on.
  void in_parameter(const Interval& interval, const auto& visit) const {
    for (std::int64_t at = interval.begin; at < interval.end;) {
      const Run run = run_at(at);
      const std::int64_t count = std::min(run.count, interval.end - at);
      visit(at, run.place, count);
      at += count;
    }
  }
  /// The other way round: `count` elements of the parameter from `begin` on lie in this order from
  /// `place` on.
  void from_parameter(const Interval& interval, const auto& visit) const {
    for (std::int64_t at = interval.begin; at < interval.end;) {
      const Run run = run_of(at);
      const std::int64_t count = std::min(run.count, interval.end - at);
      visit(at, run.place, count);
      at += count;
    }
  }
  /// The place in the parameter of an element of this order.
  [[nodiscard]] std::int64_t place_of(std::int64_t element) const { return run_at(element).place; }

 private:
  /// Elements that follow each other in both orders.
  struct Run {
    std::int64_t place = 0;
    std::int64_t count = 0;
  };
  [[nodiscard]] Run run_at(std::int64_t element) const;  ///< of this order
  [[nodiscard]] Run run_of(std::int64_t element) const;  ///< of the parameter

  std::int64_t ranks_ = 1;
  std::int64_t dim_ = 0;
  std::int64_t elements_ = 0;             ///< of the parameter
  std::int64_t cols_ = 1;                 ///< elements of a row of the whole parameter
  std::vector<std::int64_t> sections_{};  ///< rows that are cut equally each, of the whole
};

}  // namespace mfsdp
