// A plan file as it is written: what all ranks share, and the entries of its classes.
#pragma once

#include <vector>

#include "core/plan/plan.hpp"

namespace mfsdp {

/// Of a class with pools, buffers and plans of its own.
struct ClassEntry {
  RankClass rank_class;
  std::vector<Pool> pools;
  std::vector<Buffer> buffers;
  std::vector<Plan> plans;
};

/// The lists at the top level are those of a class whose entry has none, so that they are empty
/// where there are several classes.
struct PlanFile {
  Program common;  ///< its own `classes` are not used
  std::vector<ClassEntry> classes;
};

}  // namespace mfsdp
