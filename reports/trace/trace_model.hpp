// The contents of a trace, before it is written: processes with tracks of slices, arrows and
// memory.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "reports/record/result.hpp"

namespace mfsdp {

struct TraceSlice {
  OpId op;
  std::string name;
  std::string kind;
  Nanos start;
  Nanos end;
  std::string args;  ///< JSON object
};

struct TraceTrack {
  std::string name;
  std::int64_t number = 0;         ///< of its process
  std::vector<TraceSlice> slices;  ///< by start; none begins before the one before it ends
};

struct TraceProcess {
  std::string name;
  std::int64_t number = 1;
  std::vector<TraceTrack> tracks = {};  ///< by number
};

/// From the end of one slice to the start of another, both of one process.
struct TraceArrow {
  std::int64_t process = 1;
  std::int64_t from_track = 0;  ///< number
  Nanos from;                   ///< within the slice where the arrow begins
  std::int64_t to_track = 0;
  Nanos to;  ///< start of the slice where it ends
};

struct TraceModel {
  std::vector<TraceProcess> processes;
  std::vector<TraceArrow> arrows;
  std::vector<MemoryPoint> memory;  ///< of the first process, unless it is of another class
  /// The class of ranks that the memory is of, if the first process is of another.
  std::string memory_of = {};
};

/// The step, from the run's launches where it has them, else from its timeline. `program` may be
/// null (chrome_trace.hpp). `job`: all programs of a job whose ranks have launches; without it only
/// launches of the rank that the timeline is of have names, and the others are left out. Errors: as
/// write_chrome_trace.
[[nodiscard]] Result<TraceModel> trace_model(const RunResult& run, const Program* program,
                                             std::span<const Program> job = {});

}  // namespace mfsdp
