// Makes measured times of collectives monotonic.
#pragma once

#include <vector>

namespace mfsdp {

/// Times, [curve of a number of ranks][size]. Cell a is below cell b if it has neither more ranks
/// nor more bytes; its time must then not be longer.
using TimeGrid = std::vector<std::vector<double>>;

/// Changes the times by the smallest possible factor so that they never fall with bytes or ranks. A
/// cell becomes the geometric mean of the largest time below it and the smallest one above it; both
/// include the cell itself (isotonic regression in the logarithm under the maximum norm). Times
/// that already grow are unchanged. Sizes below 1 MiB, which measure a launch and differ by noise,
/// are ordered by themselves and then limited by the others, which they never change. `bytes`:
/// ascending, one for each size. Every curve has that number of times, all positive.
void make_monotone(TimeGrid& times, const std::vector<double>& bytes);

}  // namespace mfsdp
