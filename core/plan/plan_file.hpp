// The structure of a plan file: the lists that all ranks share, and the entries of its classes.
#pragma once

#include <vector>

#include "core/plan/plan.hpp"

namespace mfsdp {

/// The entry of a class with its pools, buffers and plans.
struct ClassEntry {
  RankClass rank_class;
  std::vector<Pool> pools;
  std::vector<Buffer> buffers;
  std::vector<Plan> plans;
};

/// The top-level lists belong to a class whose entry has none; they are empty if there are several
/// classes.
struct PlanFile {
  Program common;  ///< its own `classes` are not used
  std::vector<ClassEntry> classes;
};

}  // namespace mfsdp
