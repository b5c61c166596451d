// Dumps of PyTorch's flight recorder (torch/csrc/distributed/c10d/FlightRecorder.hpp): what each
// rank called of each process group. README.md has the fields.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "verify/traces/recorded_calls.hpp"

namespace mfsdp::traces {

/// A send or a receive, of ranks as the group counts them.
struct FlightTransfer {
  std::int64_t from = 0;
  std::int64_t to = 0;
  RecordedCall call;
};

/// What a rank recorded of one process group.
struct FlightGroup {
  std::string description;          ///< "default_pg"; "" not written
  std::vector<std::int64_t> ranks;  ///< ascending; empty: not written
  std::vector<RecordedCall> calls;
  std::vector<FlightTransfer> transfers;
};

struct FlightDump {
  std::string where;    ///< file, as errors name it
  std::string version;  ///< of the format, "2.10"
  std::int64_t rank = 0;
  bool whole = true;                          ///< nothing was overwritten
  std::map<std::string, FlightGroup> groups;  ///< by the name that all ranks share
};

/// A pickle, or JSON where it begins with "{". The rank is the caller's knowledge: dumps lack it.
/// Errors name `where` and the entry: what is no dump, or a field that is missing or of a wrong
/// type.
[[nodiscard]] Result<FlightDump> read_flight_dump(std::string_view bytes, const std::string& where,
                                                  std::int64_t rank);

/// The dumps of one job, by group. Errors: a rank twice, versions that differ, a rank outside of a
/// group that it recorded, a group that has other ranks in another dump.
[[nodiscard]] Result<std::vector<RecordedGroup>> join_dumps(std::vector<FlightDump> dumps);

/// Groups, and why dumps were left out of them.
struct JoinedDumps {
  std::vector<RecordedGroup> groups;
  std::vector<Error> left_out;
};

/// The same, where dumps that more than half of the others contradict are left out: those of
/// another job, or of another rank than their name says. An error where most do.
[[nodiscard]] Result<JoinedDumps> join_agreeing_dumps(std::vector<FlightDump> dumps);

}  // namespace mfsdp::traces
