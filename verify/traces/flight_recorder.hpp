// Dumps of PyTorch's flight recorder (torch/csrc/distributed/c10d/FlightRecorder.hpp): the calls
// of each rank in each process group. README.md lists the fields.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "verify/traces/recorded_calls.hpp"

namespace mfsdp::traces {

/// A send or a receive. Ranks are numbered within the group.
struct FlightTransfer {
  std::int64_t from = 0;
  std::int64_t to = 0;
  RecordedCall call;
};

/// One rank's records of one process group.
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

/// Reads a pickle, or JSON if it begins with "{". The caller gives the rank: dumps do not contain
/// it. Errors: the bytes are no dump, or a field is missing or has a wrong type. They name `where`
/// and the entry.
[[nodiscard]] Result<FlightDump> read_flight_dump(std::string_view bytes, const std::string& where,
                                                  std::int64_t rank);

/// The calls of one job, by group. Errors: two dumps of one rank, different versions, a rank that
/// recorded calls of a group to which it does not belong, a group with other ranks in another dump.
[[nodiscard]] Result<std::vector<RecordedGroup>> join_dumps(std::vector<FlightDump> dumps);

/// Groups, and why dumps were left out of them.
struct JoinedDumps {
  std::vector<RecordedGroup> groups;
  std::vector<Error> left_out;
};

/// The same, but leaves out dumps that more than half of the others contradict: they come from
/// another job, or from another rank than in their name. An error if most dumps are contradicted.
[[nodiscard]] Result<JoinedDumps> join_agreeing_dumps(std::vector<FlightDump> dumps);

}  // namespace mfsdp::traces
