#include "sim/search/find.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "sim/search/parallel.hpp"

namespace mfsdp {
namespace {

Tried look_at(std::int64_t value, const Result<Question>& question) {
  Tried tried{.value = value, .impossible = {}, .memory = {}};
  const auto ready = question ? built(*question) : question;
  if (!ready) {
    tried.impossible = ready.error();
    return tried;
  }
  tried.memory = footprint_of(*ready);
  tried.can_fit = fits(tried.memory->least, *question);
  tried.fits = fits(*ready);
  return tried;
}

/// As look_at, but for memory where the least that the plan could allocate does not fit: then it is
/// not built.
Tried look_quickly_at(std::int64_t value, const Result<Question>& question) {
  if (question && cannot_fit(*question)) return {.value = value, .impossible = {}, .memory = {}};
  return look_at(value, question);
}

/// Looks at candidates at once, asked for here: whoever answers serves one thread.
template <class Look>
std::vector<Tried> look_at_each(const std::vector<std::int64_t>& candidates, unsigned threads,
                                const AskFor& ask, Look look) {
  std::vector<Tried> looked(candidates.size());
  std::vector<Result<Question>> questions;
  questions.reserve(candidates.size());
  for (const std::int64_t value : candidates) questions.push_back(ask(value));
  run_in_parallel(
      candidates.size(), threads, [&](std::size_t i) { return look(candidates[i], questions[i]); },
      [&](std::size_t i, Tried&& tried) {
        looked[i] = std::move(tried);
        return true;
      });
  return looked;
}

/// Builds the last plans that were not, so that one sees by how much they do not fit.
void build_closest(unsigned threads, const AskFor& ask, Found& found) {
  constexpr std::size_t kMost = 12;
  std::vector<std::size_t> places;
  std::vector<std::int64_t> values;
  for (std::size_t i = found.tried.size(); i > 0 && places.size() < kMost; --i) {
    const Tried& tried = found.tried[i - 1];
    if (tried.memory || tried.impossible) continue;
    places.push_back(i - 1);
    values.push_back(tried.value);
  }
  std::vector<Tried> looked = look_at_each(values, threads, ask, look_at);
  for (std::size_t i = 0; i < places.size(); ++i) found.tried[places[i]] = std::move(looked[i]);
}

/// One search for the largest value; remembers what it has looked at.
class Largest {
 public:
  Largest(std::int64_t first, std::int64_t step, const AskFor& ask, const Watch& watch)
      : first_(first), step_(step), ask_(ask), watch_(watch) {}

  /// The candidate at that place, nothing when the search was stopped.
  std::optional<Tried> at(std::int64_t place) {
    for (const Tried& tried : found_.tried)
      if (tried.value == value(place)) return tried;
    found_.tried.push_back(look_at(value(place), ask_(value(place))));
    if (!watch_(found_.tried.back())) return std::nullopt;
    return found_.tried.back();
  }

  [[nodiscard]] std::int64_t value(std::int64_t place) const { return first_ + place * step_; }
  Found take() { return std::move(found_); }
  void choose(const Tried& tried) { found_.value = tried.value; }

 private:
  std::int64_t first_;
  std::int64_t step_;
  const AskFor& ask_;
  const Watch& watch_;
  Found found_;
};

}  // namespace

Result<Found> find_largest(std::int64_t first, std::int64_t step, std::int64_t last,
                           const AskFor& ask, const Watch& watch) {
  Largest search(first, step, ask, watch);
  const std::int64_t places = last < first ? 0 : (last - first) / step + 1;
  if (places == 0) return search.take();
  const auto start = search.at(0);
  if (!start) return search.take();
  if (start->impossible) return tl::unexpected<Error>(*start->impossible);

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
                         const AskFor& ask, const Watch& watch) {
  Found found;
  std::vector<std::int64_t> order = candidates;
  if (pick == Pick::last) std::ranges::reverse(order);
  // A batch at a time: what comes after the answer is not looked at for long.
  const std::size_t batch = std::max(threads, 1U);
  for (std::size_t begin = 0; begin < order.size() && !found.value; begin += batch) {
    const auto first = order.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto size = static_cast<std::ptrdiff_t>(std::min(batch, order.size() - begin));
    for (Tried& tried : look_at_each({first, first + size}, threads, ask, look_quickly_at)) {
      found.tried.push_back(std::move(tried));
      const Tried& last = found.tried.back();
      if (!watch(last)) return found;
      if (last.fits && !found.value) found.value = last.value;
    }
  }
  build_closest(threads, ask, found);
  const bool none_possible =
      std::ranges::all_of(found.tried, [](const Tried& t) { return t.impossible.has_value(); });
  if (none_possible && !found.tried.empty())
    return tl::unexpected<Error>(*found.tried.front().impossible);
  return found;
}

void look_at_all(const std::vector<std::int64_t>& candidates, unsigned threads, const AskFor& ask,
                 const Watch& watch, Found& found) {
  for (Tried& tried : look_at_each(candidates, threads, ask, look_at)) {
    found.tried.push_back(std::move(tried));
    if (!watch(found.tried.back())) return;
  }
}

std::vector<std::size_t> pareto_front(const std::vector<TradeOff>& points) {
  std::vector<std::size_t> order(points.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    return std::tuple(points[a].memory, -points[a].speed) <
           std::tuple(points[b].memory, -points[b].speed);
  });
  std::vector<std::size_t> front;
  for (const std::size_t i : order)
    if (front.empty() || points[i].speed > points[front.back()].speed) front.push_back(i);
  return front;
}

}  // namespace mfsdp
