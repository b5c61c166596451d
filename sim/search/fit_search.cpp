#include "sim/search/fit_search.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "sim/search/parallel.hpp"

namespace mfsdp {
namespace {

Tried try_one(std::int64_t value, const Result<PredictionRequest>& request) {
  Tried tried{.value = value, .invalid = {}, .memory = {}};
  const auto ready = request ? with_program(*request) : request;
  if (!ready) {
    tried.invalid = ready.error();
    return tried;
  }
  tried.memory = footprint_of(*ready);
  tried.can_fit = fits(tried.memory->least, *request);
  tried.fits = fits(*ready);
  return tried;
}

/// As try_one(), but builds no plan, and so finds no memory, where the lower bound does not fit.
Tried try_by_bound(std::int64_t value, const Result<PredictionRequest>& request) {
  if (request && cannot_fit(*request)) return {.value = value, .invalid = {}, .memory = {}};
  return try_one(value, request);
}

/// Tries candidates in parallel. Their requests are made here, on the searching thread.
std::vector<Tried> try_each(const std::vector<std::int64_t>& candidates, unsigned threads,
                            const RequestFor& request_for, auto attempt) {
  std::vector<Tried> tried_now(candidates.size());
  std::vector<Result<PredictionRequest>> requests;
  requests.reserve(candidates.size());
  for (const std::int64_t value : candidates) requests.push_back(request_for(value));
  run_in_parallel(
      candidates.size(), threads,
      [&](std::size_t i) { return attempt(candidates[i], requests[i]); },
      [&](std::size_t i, Tried&& tried) {
        tried_now[i] = std::move(tried);
        return true;
      });
  return tried_now;
}

/// Builds the last of the plans that were not built, to show by how much they do not fit.
void build_closest(unsigned threads, const RequestFor& request_for, Found& found) {
  constexpr std::size_t kMost = 12;
  std::vector<std::size_t> places;
  std::vector<std::int64_t> values;
  for (std::size_t i = found.tried.size(); i > 0 && places.size() < kMost; --i) {
    const Tried& tried = found.tried[i - 1];
    if (tried.memory || tried.invalid) continue;
    places.push_back(i - 1);
    values.push_back(tried.value);
  }
  std::vector<Tried> tried_now = try_each(values, threads, request_for, try_one);
  for (std::size_t i = 0; i < places.size(); ++i) found.tried[places[i]] = std::move(tried_now[i]);
}

/// One search for the largest value; tries each candidate once.
class Largest {
 public:
  Largest(std::int64_t first, std::int64_t step, const RequestFor& request_for, const Watch& watch)
      : first_(first), step_(step), request_for_(request_for), watch_(watch) {}

  /// The candidate at that place; none if the search was stopped.
  std::optional<Tried> at(std::int64_t place) {
    for (const Tried& tried : found_.tried)
      if (tried.value == value(place)) return tried;
    found_.tried.push_back(try_one(value(place), request_for_(value(place))));
    if (!watch_(found_.tried.back())) return std::nullopt;
    return found_.tried.back();
  }

  [[nodiscard]] std::int64_t value(std::int64_t place) const { return first_ + place * step_; }
  Found take() { return std::move(found_); }
  void choose(const Tried& tried) { found_.value = tried.value; }

 private:
  std::int64_t first_;
  std::int64_t step_;
  const RequestFor& request_for_;
  const Watch& watch_;
  Found found_;
};

}  // namespace

Result<Found> find_largest(std::int64_t first, std::int64_t step, std::int64_t last,
                           const RequestFor& request_for, const Watch& watch) {
  Largest search(first, step, request_for, watch);
  const std::int64_t places = last < first ? 0 : (last - first) / step + 1;
  if (places == 0) return search.take();
  const auto start = search.at(0);
  if (!start) return search.take();
  if (start->invalid) return tl::unexpected<Error>(*start->invalid);

  // `low` can fit (or is -1), `high` cannot.
  std::int64_t low = start->can_fit ? 0 : -1;
  std::int64_t high = low < 0 ? 0 : places;
  for (std::int64_t place = 1; low >= 0 && place < places; place *= 2) {
    const auto tried = search.at(place);
    if (!tried) return search.take();
    if (!tried->can_fit) {
      high = place;
      break;
    }
    low = place;
  }
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    const auto tried = search.at(middle);
    if (!tried) return search.take();
    (tried->can_fit ? low : high) = middle;
  }
  for (std::int64_t place = low; place >= 0; --place) {
    const auto tried = search.at(place);
    if (!tried) break;
    if (!tried->fits) continue;
    search.choose(*tried);
    break;
  }
  return search.take();
}

Result<Found> find_among(const std::vector<std::int64_t>& candidates, Pick pick, unsigned threads,
                         const RequestFor& request_for, const Watch& watch) {
  Found found;
  std::vector<std::int64_t> order = candidates;
  if (pick == Pick::last) std::ranges::reverse(order);
  // One batch at a time: few candidates after the answer are tried.
  const std::size_t batch = std::max(threads, 1U);
  for (std::size_t begin = 0; begin < order.size() && !found.value; begin += batch) {
    const auto first = order.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto size = static_cast<std::ptrdiff_t>(std::min(batch, order.size() - begin));
    for (Tried& tried : try_each({first, first + size}, threads, request_for, try_by_bound)) {
      found.tried.push_back(std::move(tried));
      const Tried& last = found.tried.back();
      if (!watch(last)) return found;
      if (last.fits && !found.value) found.value = last.value;
    }
  }
  build_closest(threads, request_for, found);
  const bool all_invalid =
      std::ranges::all_of(found.tried, [](const Tried& t) { return t.invalid.has_value(); });
  // The first of ascending candidates may be too small for what the flags ask for; the last is not.
  if (all_invalid && !found.tried.empty()) {
    const Tried& shown = pick == Pick::first
                             ? *std::ranges::max_element(found.tried, {}, &Tried::value)
                             : found.tried.front();
    return tl::unexpected<Error>(*shown.invalid);
  }
  return found;
}

void try_all(const std::vector<std::int64_t>& candidates, unsigned threads,
             const RequestFor& request_for, const Watch& watch, Found& found) {
  for (Tried& tried : try_each(candidates, threads, request_for, try_one)) {
    found.tried.push_back(std::move(tried));
    if (!watch(found.tried.back())) return;
  }
}

std::vector<std::size_t> pareto_front(const std::vector<TradeOff>& points) {
  std::vector<std::size_t> order(points.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    return std::tuple(points[a].memory, -points[a].speed, points[a].cost) <
           std::tuple(points[b].memory, -points[b].speed, points[b].cost);
  });
  std::vector<std::size_t> front;
  for (const std::size_t i : order)
    if (std::ranges::none_of(front, [&](std::size_t smaller) {
          return points[smaller].speed >= points[i].speed && points[smaller].cost <= points[i].cost;
        }))
      front.push_back(i);
  return front;
}

}  // namespace mfsdp
