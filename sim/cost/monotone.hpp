// Measured times of collectives, put into the order that they must have.
#pragma once

#include <vector>

namespace mfsdp {

/// Times, [curve of a number of ranks][size]. Cell a is below cell b where it has neither more
/// ranks nor more bytes, and may then not take longer.
using TimeGrid = std::vector<std::vector<double>>;

/// Changes the times so that they never fall with bytes or ranks, by the least factor possible: a
/// cell becomes the geometric mean of the largest time below it and the least one above, itself
/// included both times (isotonic regression in the logarithm under the maximum norm). Exact where
/// the measured times grow. Sizes below 1 MiB, whose time is that of a launch and whose differences
/// are noise, are put in order by themselves and then capped by the others, which they never move.
/// `bytes`: of each size, ascending; every curve has as many times, all positive.
void make_monotone(TimeGrid& times, const std::vector<double>& bytes);

}  // namespace mfsdp
