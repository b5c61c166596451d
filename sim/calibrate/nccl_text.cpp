#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <utility>

#include "core/base/text.hpp"
#include "sim/calibrate/nccl_run.hpp"

namespace mfsdp {
namespace {

using Words = std::vector<std::string_view>;

Words words_of(std::string_view line) {
  Words words;
  while (true) {
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) return words;
    line.remove_prefix(begin);
    const std::size_t end = std::min(line.find_first_of(" \t\r"), line.size());
    words.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
}

template <class Number>
std::optional<Number> number(std::string_view word) {
  Number value{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return value;
}

bool has(const Words& words, std::string_view word) {
  return std::ranges::find(words, word) != words.end();
}

bool is_header(const Words& words) {
  return !words.empty() && words[0] == "#" && has(words, "size") && has(words, "count") &&
         has(words, "busbw");
}

bool is_word_character(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/// The prefix that a launcher adds to each line of a process: "0: " (srun -l), "[1,0]<stdout>:"
/// (mpirun --tag-output), "[default0]:" (torchrun), a time. Its pattern is the text before a
/// table's header: words and numbers may differ between lines, as in times; all other characters
/// must be equal.
class LineLabel {
 public:
  explicit LineLabel(std::string_view before_header) : form_(before_header) {}

  /// The line without its label; nothing if it does not match.
  [[nodiscard]] std::optional<std::string_view> removed_from(std::string_view line) const {
    std::string_view form = form_;
    while (!form.empty()) {
      if (line.empty()) return std::nullopt;
      const std::size_t expected = run_length(form);
      const std::size_t found = run_length(line);
      if (kind_of(form[0]) != kind_of(line[0])) return std::nullopt;
      if (kind_of(form[0]) == Kind::other && form[0] != line[0]) return std::nullopt;
      form.remove_prefix(expected);
      line.remove_prefix(found);
    }
    return line;
  }

  friend bool operator==(const LineLabel&, const LineLabel&) = default;

 private:
  enum class Kind { word, blank, other };

  static Kind kind_of(char c) {
    if (is_word_character(c)) return Kind::word;
    return c == ' ' || c == '\t' ? Kind::blank : Kind::other;
  }
  /// Length of a word or of blanks; any other character counts by itself.
  static std::size_t run_length(std::string_view text) {
    const Kind kind = kind_of(text[0]);
    std::size_t length = 1;
    while (kind != Kind::other && length < text.size() && kind_of(text[length]) == kind) ++length;
    return length;
  }

  std::string form_;
};

/// The text before a table's header in this line; nothing if it has no header.
std::optional<std::string_view> before_header(std::string_view line) {
  for (std::size_t at = line.find('#'); at != std::string_view::npos; at = line.find('#', at + 1))
    if (is_header(words_of(line.substr(at)))) return line.substr(0, at);
  return std::nullopt;
}

/// Positions of the cells of a row; out-of-place cells are first.
struct Columns {
  std::size_t cells = 0;
  std::size_t redop = 0;  ///< 0: the table has none
  std::vector<std::size_t> times;
  std::vector<std::size_t> wrongs;
  bool deviations = false;  ///< older versions print the largest deviation there, not a count
};

constexpr double kMostDeviation = 1e-2;

class Reader {
 public:
  Reader(std::string where, std::vector<LineLabel> labels)
      : where_(std::move(where)), labels_(std::move(labels)) {}

  Result<void> line(std::string_view text) {
    ++number_;
    for (const LineLabel& label : labels_)
      if (const auto rest = label.removed_from(text)) {
        text = *rest;
        break;
      }
    const Words words = words_of(text);
    if (words.empty()) return {};
    if (is_header(words)) return header(words);
    if (words[0] == "#" || words[0].starts_with('#')) return comment(text, words);
    if (columns_) return row(words);
    // A command line names the benchmark if the header does not.
    if (!announced_) name_benchmark(text);
    return {};
  }

  Result<std::vector<NcclRun>> finish() {
    MFSDP_TRY(check_closed());
    return std::move(runs_);
  }

 private:
  [[nodiscard]] std::string place() const { return fmt::format("{}:{}", where_, number_); }

  Result<void> check_closed() const {
    if (!columns_) return {};
    return fail(run_.place,
                "the table has no closing line \"# Avg bus bandwidth\"; the run was cut short");
  }

  void name_benchmark(std::string_view text) {
    if (std::string named = benchmark_named_in(text); !named.empty()) benchmark_ = std::move(named);
  }

  Result<void> comment(std::string_view text, const Words& words) {
    if (text.find("Collective test starting") != std::string_view::npos) {
      MFSDP_TRY(check_closed());
      name_benchmark(text);
      announced_ = true;
      return {};
    }
    if (has(words, "nThread")) {
      MFSDP_TRY(check_closed());
      forget_devices();
    }
    if (has(words, "devices") && has(words, "Using")) forget_devices();
    if (words.size() > 1 && words[1] == "Rank") return device(words);
    if (has(words, "(B)")) return units(words);
    if (text.find("Out of bounds values") != std::string_view::npos && columns_)
      return bounds(words);
    if (text.find("Avg bus bandwidth") != std::string_view::npos && columns_) return close(words);
    return {};
  }

  void forget_devices() {
    ranks_.clear();
    hosts_.clear();
    device_.clear();
  }

  /// "#  Rank  0 Group  0 Pid 123 on host device  0 [0000:1b:00] NVIDIA H200"
  Result<void> device(const Words& words) {
    const auto after = [&](std::string_view word) {
      const auto found = std::ranges::find(words, word);
      return found == words.end() || found + 1 == words.end() ? std::string_view() : found[1];
    };
    const auto rank = number<std::int64_t>(after("Rank"));
    if (!rank || after("on").empty() || !has(words, "device"))
      return fail(place(), "is a cut list of devices; expected \"#  Rank ... on HOST device ...\"");
    if (has(words, "Group") && after("Group") != "0")
      return fail(place(), "the ranks are split into groups; expected one communicator");
    ranks_.insert(*rank);
    hosts_.emplace(after("on"));
    const auto bus = std::ranges::find_if(words, [](auto word) { return word.starts_with('['); });
    if (device_.empty() && bus != words.end())
      device_ = fmt::format("{}", fmt::join(bus + 1, words.end(), " "));
    return {};
  }

  Result<void> header(const Words& words) {
    MFSDP_TRY(check_closed());
    if (ranks_.empty())
      return fail(place(),
                  "no list of devices (\"#  Rank  0 ...\") precedes the table; the number "
                  "of ranks is unknown");
    const auto count = static_cast<std::int64_t>(ranks_.size());
    if (*ranks_.begin() != 0 || *ranks_.rbegin() != count - 1)
      return fail(place(), fmt::format("the list of devices names {} ranks up to {}; some are cut",
                                       count, *ranks_.rbegin()));
    Columns columns;
    for (std::size_t i = 1; i < words.size(); ++i) {
      const std::size_t cell = i - 1;
      if (words[i] == "cputime")
        return fail(place(), "reports CPU times (-C); expected the times of the collectives");
      if (words[i] == "redop") columns.redop = cell;
      if (words[i] == "time") columns.times.push_back(cell);
      columns.deviations = columns.deviations || words[i] == "error";
      if (words[i] == "#wrong" || words[i] == "error") columns.wrongs.push_back(cell);
      columns.cells += words[i] == "timestamp" ? 2 : 1;  // a date and a time of day
    }
    if (columns.times.empty() || columns.times.size() != columns.wrongs.size())
      return fail(place(), "expected columns time, algbw, busbw and #wrong, once or twice");
    columns_ = columns;
    units_ = false;
    run_ = NcclRun{.benchmark = benchmark_,
                   .ranks = count,
                   .nodes = static_cast<std::int64_t>(hosts_.size()),
                   .device = device_,
                   .place = place()};
    return {};
  }

  Result<void> units(const Words& words) {
    if (!columns_) return {};
    for (const std::string_view word : words) {
      const bool known = word == "#" || word == "(B)" || word == "(elements)" || word == "(us)" ||
                         word == "(GB/s)" || word == "(%)" || word.starts_with('%');
      if (!known)
        return fail(place(), fmt::format("unit {}; expected (B), (elements), (us) and (GB/s)",
                                         printable(word.substr(0, 40))));
    }
    const auto count = static_cast<std::size_t>(std::ranges::count(words, "(us)"));
    if (count < columns_->times.size() || !has(words, "(GB/s)"))
      return fail(place(), "expected units (B), (elements), (us) and (GB/s) for every column");
    units_ = true;
    return {};
  }

  /// Reads the four cells that begin with a time.
  Result<std::optional<NcclTiming>> timing(const Words& words, std::size_t time,
                                           std::size_t wrong) const {
    if (words[time] == "N/A") return std::nullopt;
    const auto us = number<double>(words[time]);
    const auto algorithm = number<double>(words[time + 1]);
    const auto bus = number<double>(words[time + 2]);
    auto errors = number<double>(words[wrong]);
    if (!us || !algorithm || !bus || (!errors && words[wrong] != "N/A"))
      return fail(place(), "expected numbers for time, algbw, busbw and #wrong");
    if (columns_->deviations && errors && *errors <= kMostDeviation) errors = 0;
    return NcclTiming{
        .us = *us, .alg_bandwidth = *algorithm, .bus_bandwidth = *bus, .wrong = errors};
  }

  Result<void> row(const Words& words) {
    const auto size = number<std::int64_t>(words[0]);
    const bool digit = words[0][0] >= '0' && words[0][0] <= '9';
    if (!size && !digit) return {};  // a message of NCCL between rows
    if (!size) return fail(place(), "expected a size in bytes first");
    if (!units_)
      return fail(place(), "no line of units (\"#  (B) ... (us) ...\") precedes this row");
    if (words.size() != columns_->cells)
      return fail(place(),
                  fmt::format("has {} cells; the header has {}", words.size(), columns_->cells));
    const auto count = number<std::int64_t>(words[1]);
    if (*size < 0 || *size > kMostBytes || !count || *count < 0 || *count > kMostBytes)
      return fail(place(), "expected a size and a count from 0 to 1e15");
    NcclLine line{.size = *size,
                  .count = *count,
                  .type = std::string(words[2]),
                  .redop = columns_->redop == 0 ? "none" : std::string(words[columns_->redop]),
                  .place = place()};
    MFSDP_SET(line.out_of_place, timing(words, columns_->times[0], columns_->wrongs[0]));
    if (columns_->times.size() > 1)
      MFSDP_SET(line.in_place, timing(words, columns_->times[1], columns_->wrongs[1]));
    run_.lines.push_back(std::move(line));
    return {};
  }

  Result<void> bounds(const Words& words) const {
    const auto colon = std::ranges::find(words, ":");
    const bool good = colon != words.end() && colon + 1 != words.end() && colon[1] == "0";
    if (!good) return fail(place(), "the run found values out of bounds; its data are corrupt");
    return {};
  }

  Result<void> close(const Words& words) {
    const auto colon = std::ranges::find(words, ":");
    if (colon != words.end() && colon + 1 != words.end()) run_.average = number<double>(colon[1]);
    if (!run_.average) return fail(place(), "expected the average bus bandwidth in GB/s");
    runs_.push_back(std::move(run_));
    run_ = {};
    columns_.reset();
    benchmark_.clear();
    announced_ = false;
    return {};
  }

  static constexpr std::int64_t kMostBytes = 1'000'000'000'000'000;

  std::string where_;
  std::vector<LineLabel> labels_;
  std::size_t number_ = 0;
  std::string benchmark_;   ///< of the next table
  bool announced_ = false;  ///< by the header itself
  std::set<std::int64_t> ranks_;
  std::set<std::string, std::less<>> hosts_;
  std::string device_;
  std::optional<Columns> columns_;  ///< of the open table
  bool units_ = false;
  NcclRun run_;
  std::vector<NcclRun> runs_;
};

Result<void> each_line(std::string_view text, auto visit) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    MFSDP_TRY(visit(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return {};
}

/// The labels of all tables, without duplicates.
std::vector<LineLabel> labels_of(std::string_view text) {
  std::vector<LineLabel> labels;
  static_cast<void>(each_line(text, [&](std::string_view line) -> Result<void> {
    const auto before = before_header(line);
    if (!before || before->empty()) return {};
    const LineLabel label(*before);
    if (std::ranges::find(labels, label) == labels.end()) labels.push_back(label);
    return {};
  }));
  return labels;
}

}  // namespace

bool is_nccl_text(std::string_view text) {
  bool found = false;
  static_cast<void>(each_line(text, [&](std::string_view line) -> Result<void> {
    found = found || before_header(line).has_value();
    return {};
  }));
  return found;
}

Result<std::vector<NcclRun>> read_nccl_text(std::string_view text, const std::string& where) {
  Reader reader(where, labels_of(text));
  MFSDP_TRY(each_line(text, [&](std::string_view line) { return reader.line(line); }));
  return reader.finish();
}

}  // namespace mfsdp
