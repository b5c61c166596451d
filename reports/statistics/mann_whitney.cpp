#include "reports/statistics/mann_whitney.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <vector>

namespace mfsdp {
namespace {

bool has_exact_distribution(std::size_t n, std::size_t m) {
  return std::min(n, m) <= 20 && std::max(n, m) <= 200;
}

/// How many values are equal, for each value of both lists, by value.
std::vector<std::size_t> group_sizes(std::span<const double> first,
                                     std::span<const double> second) {
  std::vector<double> all(first.begin(), first.end());
  all.insert(all.end(), second.begin(), second.end());
  std::ranges::sort(all);
  std::vector<std::size_t> sizes;
  for (std::size_t i = 0; i < all.size();) {
    const std::size_t begin = i;
    while (i < all.size() && all[i] == all[begin]) ++i;
    sizes.push_back(i - begin);
  }
  return sizes;
}

/// Fraction of all choices of some of the values that gives each u.
struct Distribution {
  std::vector<double> shares;  ///< element i: P(2u = i * unit), as equal values count a half
  std::size_t unit = 2;        ///< 1 where values are equal, which u need not be whole for
};

/// For values that all differ: the coefficients of Gauss's binomial (Mann and Whitney, 1947), which
/// is this over i = 1 ... chosen, with all factors multiplied:
///   (1 - x^(others + i)) / (1 - x^i)
/// It is symmetric, so the lower half is enough. Each partial result is such a binomial itself:
/// small coefficients are exact.
Distribution distribution_without_ties(std::size_t chosen, std::size_t others) {
  const std::size_t most = chosen * others;
  std::vector<double> ways(most / 2 + 1, 0);
  ways[0] = 1;
  for (std::size_t i = 1; i <= chosen; ++i) {
    for (std::size_t u = ways.size(); u-- > others + i;) ways[u] -= ways[u - others - i];
    for (std::size_t u = i; u < ways.size(); ++u) ways[u] += ways[u - i];
  }
  Distribution result{.shares = std::move(ways), .unit = 2};
  std::vector<double>& shares = result.shares;
  shares.resize(most + 1);
  for (std::size_t u = most / 2 + 1; u <= most; ++u) shares[u] = shares[most - u];
  const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) share /= all;
  return result;
}

/// For groups of equal values, by size. Adds one group after the other: j of its values and k - j
/// of those before it make k.
Distribution distribution_with_ties(std::size_t chosen, std::span<const std::size_t> groups) {
  const std::size_t others = std::accumulate(groups.begin(), groups.end(), std::size_t{0}) - chosen;
  const std::size_t most = 2 * chosen * others;
  // ways[k][i]: k values chosen so far; u counts, for each, the unchosen ones below it.
  std::vector<std::vector<double>> ways(chosen + 1, std::vector<double>(most + 1, 0));
  ways[0][0] = 1;
  std::size_t before = 0;
  for (const std::size_t size : groups) {
    for (std::size_t k = std::min(chosen, before + size); k >= 1; --k) {
      double choices = 1;  // of j values of the group
      for (std::size_t j = 1; j <= std::min(size, k); ++j) {
        choices = choices * static_cast<double>(size - j + 1) / static_cast<double>(j);
        if (k - j > before) continue;
        const std::size_t below = before - (k - j);  // unchosen
        if (below > others) continue;                // leads nowhere
        const std::size_t added = j * (2 * below + (size - j));
        const std::vector<double>& from = ways[k - j];
        std::vector<double>& to = ways[k];
        for (std::size_t i = added; i <= most; ++i) to[i] += choices * from[i - added];
      }
    }
    before += size;
  }
  Distribution result{.shares = std::move(ways[chosen]), .unit = 1};
  const double all = std::accumulate(result.shares.begin(), result.shares.end(), 0.0);
  for (double& share : result.shares) share /= all;
  return result;
}

/// The same for the second list's u, whichever list is the shorter one.
Distribution distribution_of(std::span<const double> first, std::span<const double> second) {
  const std::vector<std::size_t> groups = group_sizes(first, second);
  const auto [chosen, others] = std::minmax({first.size(), second.size()});
  const bool has_ties = groups.size() < chosen + others;
  if (!has_ties) return distribution_without_ties(chosen, others);
  Distribution result = distribution_with_ties(chosen, groups);
  // Both lists' u make all pairs.
  if (first.size() < second.size()) std::ranges::reverse(result.shares);
  return result;
}

double normal_tail(double z) { return 0.5 * std::erfc(z / std::numbers::sqrt2); }

/// Sum of t^3 - t over the groups of t equal values.
double tie_term(std::span<const double> first, std::span<const double> second) {
  double sum = 0;
  for (const std::size_t size : group_sizes(first, second)) {
    const auto equal = static_cast<double>(size);
    sum += equal * equal * equal - equal;
  }
  return sum;
}

double deviation_of_u(double n, double m, double ties) {
  const double all = n + m;
  return std::sqrt(std::max(0.0, n * m / 12 * (all + 1 - ties / (all * (all - 1)))));
}

/// The largest count c of smallest differences that may be left out: P(U < c) <= significance.
std::size_t left_out_of(std::size_t n, std::size_t m, double significance) {
  if (has_exact_distribution(n, m)) {
    const std::vector<double> shares =
        distribution_without_ties(std::min(n, m), std::max(n, m)).shares;
    double sum = 0;
    std::size_t count = 0;
    while (count < shares.size() && sum + shares[count] <= significance) sum += shares[count++];
    return count;
  }
  // The normal approximation: the largest c whose tail, with continuity, is small enough.
  const double deviation = deviation_of_u(static_cast<double>(n), static_cast<double>(m), 0);
  const double middle = static_cast<double>(n) * static_cast<double>(m) / 2;
  std::size_t count = 0;
  while (normal_tail((middle - static_cast<double>(count) - 0.5) / deviation) <= significance)
    ++count;
  return count;
}

}  // namespace

RankTest mann_whitney(std::span<const double> first, std::span<const double> second) {
  RankTest test;
  std::vector<double> sorted(first.begin(), first.end());
  std::ranges::sort(sorted);
  for (const double b : second) {
    const auto equal = std::ranges::equal_range(sorted, b);
    test.u += static_cast<double>(equal.begin() - sorted.begin()) +
              0.5 * static_cast<double>(equal.size());
  }
  const auto n = static_cast<double>(first.size());
  const auto m = static_cast<double>(second.size());
  test.effect = 2 * test.u / (n * m) - 1;
  test.exact = has_exact_distribution(first.size(), second.size());
  if (test.exact) {
    const auto [shares, unit] = distribution_of(first, second);
    const auto index = static_cast<std::size_t>(std::llround(2 * test.u)) / unit;
    const auto at = shares.begin() + static_cast<std::ptrdiff_t>(index);
    test.p_smaller = std::min(1.0, std::accumulate(shares.begin(), at + 1, 0.0));
    test.p_larger = std::min(1.0, std::accumulate(at, shares.end(), 0.0));
    return test;
  }
  const double deviation = deviation_of_u(n, m, tie_term(first, second));
  if (deviation == 0) return test;  // all values are equal
  test.p_larger = normal_tail((test.u - n * m / 2 - 0.5) / deviation);
  test.p_smaller = normal_tail((n * m / 2 - test.u - 0.5) / deviation);
  return test;
}

Shift shift_between(std::span<const double> first, std::span<const double> second,
                    double significance) {
  std::vector<double> differences;
  differences.reserve(first.size() * second.size());
  for (const double a : first)
    for (const double b : second) differences.push_back(b - a);
  std::ranges::sort(differences);
  const std::size_t count = left_out_of(first.size(), second.size(), significance);
  // c differences are left out at each end: the range begins with the next one.
  const std::size_t skipped = count == 0 ? 0 : count - 1;
  const std::size_t all = differences.size();
  return {.estimate = (differences[(all - 1) / 2] + differences[all / 2]) / 2,
          .low = differences[skipped],
          .high = differences[all - 1 - skipped],
          .bounded = count > 0};
}

}  // namespace mfsdp
