#include "verify/proof/values/causal_pairs.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <vector>

namespace mfsdp {
namespace {

/// The part on the rank of cp with that index, where all other axes have index 0.
std::int64_t part_on(const Attribute& part, std::int64_t index) {
  std::int64_t stated = part.value.num;
  for (const IndexStep& per : part.per)
    if (per.axis == Axis::cp) stated = checked_add(stated, checked_mul(per.step, index));
  return stated;
}

}  // namespace

std::optional<std::string> wrong_pairs(const Attribute& part, const Mesh& mesh) {
  const std::int64_t ranks = mesh.size(Axis::cp);
  const std::int64_t chunks = checked_mul(2, ranks);
  // A rank has the keys of all chunks, so it computes all pairs of the queries that it has: pairs
  // are on as many ranks as their queries.
  std::vector<std::int64_t> found(static_cast<std::size_t>(chunks), 0);
  for (std::int64_t index = 0; index < ranks; ++index) {
    const std::int64_t first = part_on(part, index);
    for (const std::int64_t chunk : {first, chunks - 1 - first}) {
      if (chunk < 0 || chunk >= chunks)
        return fmt::format("attends with chunk {} of {} on rank {} of cp", chunk, chunks, index);
      ++found[static_cast<std::size_t>(chunk)];
    }
  }
  for (std::int64_t query = 0; query < chunks; ++query)
    for (std::int64_t key = 0; key <= query; ++key)
      if (const std::int64_t times = found[static_cast<std::size_t>(query)]; times != 1)
        return fmt::format(
            "is computed on {} ranks of cp for the queries of chunk {} and the keys of chunk {}, "
            "of "
            "{} chunks of a sequence; expected one",
            times, query, key, chunks);
  return std::nullopt;
}

}  // namespace mfsdp
