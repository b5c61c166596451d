// Which waits of streams a trace holds, and what they order. Private to the rules.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/formats/kineto.hpp"

namespace mfsdp::traces {

/// How much a trace says of waits.
enum class WaitsKnown {
  recorded,  ///< some wait names the record that it is for
  dropped,   ///< there are waits, and none names its record: CUDA 12.9 and later, kineto 1552
  absent     ///< the profiler was not asked for waits
};
[[nodiscard]] WaitsKnown waits_known(const Trace& trace);

enum class Ordered { yes, no, unknown };

/// The host's calls have numbers (correlations) that grow in its order. A wait on a stream orders
/// what is launched there later after all that was launched on the event's stream before its
/// record:
///
///   reductions   reduce(5)  record(6)
///   compute                             wait(7: 6)  gemm(8)  record(9)
///   gathers                                                             wait(10: 9)  gather(11)
///
/// orders reduce before gather, by way of compute. Streams on which nothing ran are no way: NCCL's
/// own order of launches goes by such a stream (launchOrder in src/enqueue.cc).
class StreamWaits {
 public:
  explicit StreamWaits(const Trace& trace);

  /// Whether waits order `later` after the end of `earlier`, both of one device. Unknown where a
  /// wait that may do so lacks its record, or a call lacks its number.
  [[nodiscard]] Ordered orders(const CollectiveCall& earlier, const CollectiveCall& later) const;

 private:
  struct Wait {
    std::int64_t correlation;
    bool known;
    std::int64_t on_stream;
    std::int64_t record;
  };
  using Stream = std::pair<std::int32_t, std::int64_t>;  ///< of a device
  std::map<Stream, std::vector<Wait>> by_stream_;        ///< by number
  std::set<Stream> with_work_;
};

}  // namespace mfsdp::traces
