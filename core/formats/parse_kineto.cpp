#include <fmt/format.h>

#include <istream>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/text.hpp"
#include "core/formats/event_fields.hpp"
#include "core/formats/kineto.hpp"
#include "core/formats/trace_builder.hpp"
#include "core/formats/trace_source.hpp"

namespace mfsdp::traces {
namespace {

constexpr std::int64_t kMostRanks = 1 << 30;
constexpr std::size_t kMostDepth = 64;
constexpr std::size_t kQuotedNameBytes = 60;  ///< in one message
constexpr std::string_view kPolicy = "NCCL_CTA_POLICY";

/// Receives the parser's events and builds the Trace.
class Reader {
 public:
  Reader(TraceSource& source, const KinetoSettings& settings)
      : source_(source), builder_(settings) {}

  // ---- callbacks of nlohmann's parser; false ends the parse
  bool null() {
    return value([&](Field field) { event_.set_wrong(field); });
  }
  bool boolean(bool /*value*/) { return null(); }
  bool number_integer(std::int64_t number) { return integer(number); }
  bool number_unsigned(std::uint64_t number) {
    if (std::in_range<std::int64_t>(number)) return integer(static_cast<std::int64_t>(number));
    return null();
  }
  bool number_float(double /*value*/, const std::string& text) {
    return value([&](Field field) {
      if (field == Field::begin || field == Field::duration) {
        event_.set_time(field, text);
      } else {
        event_.set_wrong(field);
      }
    });
  }
  bool string(std::string& text) {
    if (is_policy()) builder_.trace().cta_policy = text;
    return value([&](Field field) { event_.set_text(field, text); });
  }
  bool binary(nlohmann::json::binary_t& /*value*/) { return null(); }
  bool key(std::string& name);
  bool start_object(std::size_t /*elements*/) { return open(true); }
  bool start_array(std::size_t /*elements*/) { return open(false); }
  bool end_object() {
    source_.mark();
    const Place place = places_.back();
    places_.pop_back();
    field_ = Field::none;
    return place != Place::event || finish_event();
  }
  bool end_array() {
    source_.mark();
    places_.pop_back();
    field_ = Field::none;
    return true;
  }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& error);

  /// Whether a value is that of NCCL's variable among the metadata (profiler.add_metadata).
  [[nodiscard]] bool is_policy() const {
    return !places_.empty() && places_.back() == Place::root && root_key_ == kPolicy;
  }
  /// Whether a value is the rank that wrote the trace, or the number of ranks.
  [[nodiscard]] bool is_of_ranks() const {
    return !places_.empty() && places_.back() == Place::distributed &&
           (root_key_ == "rank" || root_key_ == "world_size");
  }
  [[nodiscard]] std::int64_t least_of_ranks() const { return root_key_ == "rank" ? 0 : 1; }
  [[nodiscard]] bool found_events() const { return found_events_; }
  [[nodiscard]] const std::string& complaint() const { return complaint_; }
  [[nodiscard]] Trace take() {
    builder_.trace().bytes = static_cast<std::int64_t>(source_.position());
    return builder_.finish();
  }

 private:
  enum class Place { root, distributed, events, event, args, dims, tensor, skipped };

  bool open(bool object);
  bool integer(std::int64_t number);
  bool value(auto take);

  bool finish_event() {
    const Complaint wrong = builder_.add(event_);
    return !wrong || refuse_event(*wrong);
  }

  bool refuse_event(const std::string& what) {
    complaint_ = fmt::format(
        "event {}{}: {}", builder_.trace().events - 1,
        event_.name.empty()
            ? ""
            : fmt::format(" (\"{}\")", printable(event_.name.substr(0, kQuotedNameBytes))),
        what);
    return false;
  }
  bool refuse_here(const std::string& what) {
    complaint_ = fmt::format("byte {}: {}", source_.position(), what);
    return false;
  }

  TraceSource& source_;
  TraceBuilder builder_;
  std::vector<Place> places_;
  Field field_ = Field::none;
  std::string root_key_;
  EventFields event_;
  bool found_events_ = false;
  std::string complaint_;
};

bool Reader::open(bool object) {
  source_.mark();
  if (places_.size() == kMostDepth)
    return refuse_here(fmt::format("nested deeper than {} levels", kMostDepth));
  Place place = Place::skipped;
  if (places_.empty()) {
    place = object ? Place::root : Place::events;
    found_events_ = !object;
  } else if (places_.back() == Place::root && object && root_key_ == "distributedInfo") {
    place = Place::distributed;
  } else if (places_.back() == Place::root && root_key_ == "traceEvents") {
    if (object) return refuse_here("traceEvents: expected a list of events, got an object");
    if (std::exchange(found_events_, true)) return refuse_here("traceEvents appears twice");
    place = Place::events;
  } else if (places_.back() == Place::events) {
    ++builder_.trace().events;
    event_.clear();
    if (!object) return refuse_event("expected an object, got a list");
    place = Place::event;
  } else if (places_.back() == Place::event && field_ == Field::args && object) {
    place = Place::args;
  } else if (places_.back() == Place::args && field_ == Field::dims && !object) {
    place = Place::dims;
  } else if (places_.back() == Place::dims && !object) {
    // An input that is a list of tensors has nested lists, which are left out.
    event_.dims.emplace_back();
    place = Place::tensor;
  } else if (places_.back() == Place::event || places_.back() == Place::args) {
    event_.set_wrong(field_);
  }
  places_.push_back(place);
  field_ = Field::none;
  return true;
}

bool Reader::key(std::string& name) {
  source_.mark();
  switch (places_.back()) {
    case Place::event: field_ = event_field(name); break;
    case Place::args: field_ = args_field(name); break;
    case Place::root:
    case Place::distributed: root_key_ = name; return true;
    default: return true;
  }
  if (event_.begin_field(field_)) return true;
  return refuse_event(fmt::format("\"{}\" appears twice", key_of(field_)));
}

bool Reader::value(auto take) {
  source_.mark();
  if (places_.empty())
    return refuse_here("expected a trace: an object with traceEvents, or a list");
  if (is_of_ranks())
    return refuse_here(fmt::format("distributedInfo: {}: expected a whole number from {} to {}",
                                   root_key_, least_of_ranks(), kMostRanks));
  if (places_.back() == Place::event || places_.back() == Place::args) {
    take(field_);
  } else if (places_.back() == Place::events) {
    ++builder_.trace().events;
    event_.clear();
    return refuse_event("expected an object");
  } else if (places_.back() == Place::root && root_key_ == "traceEvents") {
    return refuse_here("traceEvents: expected a list of events");
  }
  return true;
}

bool Reader::integer(std::int64_t number) {
  if (is_of_ranks() && number >= least_of_ranks() && number <= kMostRanks) {
    source_.mark();
    (root_key_ == "rank" ? builder_.trace().rank : builder_.trace().world_size) = number;
    return true;
  }
  if (is_policy()) builder_.trace().cta_policy = fmt::format_int(number).c_str();
  if (!places_.empty() && places_.back() == Place::tensor) event_.dims.back().push_back(number);
  return value([&](Field field) {
    if (field == Field::begin || field == Field::duration) {
      event_.set_time(field, fmt::format_int(number).c_str());
    } else {
      event_.set_integer(field, number);
    }
  });
}

bool Reader::parse_error(std::size_t position, const std::string& token,
                         const nlohmann::detail::exception& error) {
  constexpr int kNumberOverflow = 406;
  // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error while parsing
  // value - invalid literal; last read: '...'": what follows the semicolon may be megabytes.
  std::string what = error.what();
  if (const auto colon = what.find(": "); colon != std::string::npos) what.erase(0, colon + 2);
  if (const auto quote = what.find("; last read"); quote != std::string::npos) what.resize(quote);
  if (error.id == kNumberOverflow) what = "expected a number up to 1.8e308, got " + token;
  if (what.size() > 200) what.resize(200);
  complaint_ = fmt::format("byte {}: {}", position, printable(what));
  return false;
}

Result<Trace> read(TraceSource& source, const std::string& where, const KinetoSettings& settings) {
  Reader reader(source, settings);
  std::istream characters(&source);
  const bool good = nlohmann::json::sax_parse(characters, &reader);
  // An error of the source explains the parser's, which then found the text incomplete.
  if (source.error()) return tl::unexpected<Error>(*source.error());
  const auto kind = source.kind();
  if (!good && kind && kind != FileKind::json && kind != FileKind::gzip && kind != FileKind::text)
    return fail(where, fmt::format("expected a trace of PyTorch's profiler (.json or .json.gz), "
                                   "got {}",
                                   to_words(*kind)));
  if (!good) return fail(where, reader.complaint());
  if (!reader.found_events()) return fail(where, "expected a trace: there are no traceEvents");
  Trace trace = reader.take();
  trace.where = where;
  if (trace.rank && trace.world_size && *trace.rank >= *trace.world_size)
    return fail(where,
                fmt::format("distributedInfo: rank: expected less than the world_size of {}, "
                            "got {}",
                            *trace.world_size, *trace.rank));
  return trace;
}

}  // namespace

Result<Trace> read_kineto(const std::filesystem::path& path, const KinetoSettings& settings) {
  MFSDP_LET(source, TraceSource::open(path));
  return read(*source, printable(path.string()), settings);
}

Result<Trace> parse_kineto(std::string_view bytes, const std::string& where,
                           const KinetoSettings& settings) {
  const auto source = TraceSource::of(bytes, where);
  return read(*source, where, settings);
}

}  // namespace mfsdp::traces
