#include "verify/proof/values/causal_pairs.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <vector>

#include "core/plan/rank_numbers.hpp"

namespace mfsdp {

std::optional<std::string> wrong_pairs(const Attribute& part, const Mesh& mesh) {
  const std::int64_t ranks = mesh.size(Axis::cp);
  const std::int64_t chunks = checked_mul(2, ranks);
  // A rank has the keys of all chunks (in a ring, the values of its steps are all in), so it
  // computes all pairs of the queries that it has: pairs are on as many ranks as their queries.
  std::vector<std::int64_t> found(static_cast<std::size_t>(chunks), 0);
  for (std::int64_t index = 0; index < ranks; ++index) {
    const std::int64_t rank = checked_mul(index, mesh.stride(Axis::cp));  // 0 on other axes
    const std::int64_t first = value_on(part, mesh, rank).num;
    for (const std::int64_t chunk : {first, chunks - 1 - first}) {
      if (chunk < 0 || chunk >= chunks)
        return fmt::format("attends with chunk {} of {} on rank {} of cp", chunk, chunks, index);
      ++found[static_cast<std::size_t>(chunk)];
    }
  }
  for (std::int64_t query = 0; query < chunks; ++query)
    if (const std::int64_t times = found[static_cast<std::size_t>(query)]; times != 1)
      return fmt::format(
          "is computed on {} ranks of cp for the queries of chunk {} and the keys of chunk 0, of "
          "{} "
          "chunks of a sequence; expected one",
          times, query, chunks);
  return std::nullopt;
}

}  // namespace mfsdp
