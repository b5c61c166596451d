#include <fmt/format.h>

#include <algorithm>
#include <istream>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "core/base/text.hpp"
#include "verify/traces/event_fields.hpp"
#include "verify/traces/kernel_kinds.hpp"
#include "verify/traces/kineto.hpp"
#include "verify/traces/trace_source.hpp"

namespace mfsdp::traces {
namespace {

constexpr std::size_t kMostDepth = 64;
constexpr std::size_t kQuoted = 60;  ///< of a name in a message
constexpr std::string_view kStep = "ProfilerStep#";

struct Launch {
  std::int64_t correlation;
  Nanos begin;
};

/// Names by number, each kept once.
class Names {
 public:
  Names() { (void)number_of(""); }

  std::uint32_t number_of(const std::string& name) {
    const auto [at, is_new] = numbers_.try_emplace(name, static_cast<std::uint32_t>(size_));
    if (is_new) {
      ++size_;
      bytes_ += name.size();
    }
    return at->second;
  }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] std::vector<std::string> take() {
    std::vector<std::string> list(size_);
    while (!numbers_.empty()) {
      auto node = numbers_.extract(numbers_.begin());
      list[node.mapped()] = std::move(node.key());
    }
    return list;
  }

 private:
  std::unordered_map<std::string, std::uint32_t> numbers_;
  std::size_t size_ = 0;
  std::size_t bytes_ = 0;
};

/// Takes the parser's events and keeps what the Trace holds.
class Reader {
 public:
  Reader(TraceSource& source, const KinetoSettings& settings)
      : source_(source), settings_(settings) {}

  // ---- what nlohmann's parser calls; false ends the parse
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

  [[nodiscard]] bool found_events() const { return found_events_; }
  [[nodiscard]] const std::string& complaint() const { return complaint_; }
  [[nodiscard]] Trace take();

 private:
  enum class Place { root, distributed, events, event, args, skipped };

  bool open(bool object);
  bool integer(std::int64_t number);
  template <class Take>
  bool value(Take take);

  bool finish_event();
  bool take_activity(WorkKind kind);
  bool take_collective(const GpuWork& work);
  bool take_host_call();
  bool take_step(bool on_device);
  bool take_sync();
  bool needs(std::initializer_list<Field> fields);
  bool number_in_range(std::optional<std::int64_t> value, std::string_view what,
                       std::int32_t& into);
  /// The event's time is within bounds and its duration is not negative.
  bool needs_span();
  bool room_for(std::size_t count);
  [[nodiscard]] std::optional<std::int64_t> device() const;

  bool refuse_event(const std::string& what) {
    complaint_ = fmt::format(
        "event {}{}: {}", trace_.events - 1,
        event_.name.empty() ? ""
                            : fmt::format(" (\"{}\")", printable(event_.name.substr(0, kQuoted))),
        what);
    return false;
  }
  bool refuse_here(const std::string& what) {
    complaint_ = fmt::format("byte {}: {}", source_.position(), what);
    return false;
  }

  TraceSource& source_;
  const KinetoSettings& settings_;
  Trace trace_;
  Names names_;
  std::vector<Launch> launches_;
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
    ++trace_.events;
    event_.clear();
    if (!object) return refuse_event("expected an object, got a list");
    place = Place::event;
  } else if (places_.back() == Place::event && field_ == Field::args && object) {
    place = Place::args;
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

template <class Take>
bool Reader::value(Take take) {
  source_.mark();
  if (places_.empty())
    return refuse_here("expected a trace: an object with traceEvents, or a list");
  if (places_.back() == Place::event || places_.back() == Place::args) {
    take(field_);
  } else if (places_.back() == Place::events) {
    ++trace_.events;
    event_.clear();
    return refuse_event("expected an object");
  } else if (places_.back() == Place::root && root_key_ == "traceEvents") {
    return refuse_here("traceEvents: expected a list of events");
  }
  return true;
}

bool Reader::integer(std::int64_t number) {
  if (!places_.empty() && places_.back() == Place::distributed) {
    if (root_key_ == "rank") trace_.rank = number;
    if (root_key_ == "world_size") trace_.world_size = number;
  }
  return value([&](Field field) {
    if (field == Field::begin || field == Field::duration) {
      event_.set_time(field, fmt::format_int(number).c_str());
    } else {
      event_.set_integer(field, number);
    }
  });
}

bool Reader::parse_error(std::size_t position, const std::string& /*token*/,
                         const nlohmann::detail::exception& error) {
  // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error while parsing
  // value - invalid literal; last read: '...'": what follows the semicolon may be megabytes.
  std::string what = error.what();
  if (const auto colon = what.find(": "); colon != std::string::npos) what.erase(0, colon + 2);
  if (const auto quote = what.find("; last read"); quote != std::string::npos) what.resize(quote);
  if (what.size() > 200) what.resize(200);
  complaint_ = fmt::format("byte {}: {}", position, printable(what));
  return false;
}

bool Reader::needs(std::initializer_list<Field> fields) {
  for (const Field field : fields) {
    if (event_.is_wrong(field)) return refuse_event(fmt::format("{}: wrong type", key_of(field)));
    if (!event_.has(field)) return refuse_event(fmt::format("lacks \"{}\"", key_of(field)));
  }
  return true;
}

bool Reader::needs_span() {
  if (!needs({Field::name, Field::begin, Field::duration})) return false;
  if (*event_.duration < Nanos(0))
    return refuse_event(fmt::format("dur: expected at least 0, got {} ns", event_.duration->value));
  return true;
}

bool Reader::number_in_range(std::optional<std::int64_t> value, std::string_view what,
                             std::int32_t& into) {
  if (!value) return refuse_event(fmt::format("names no {}", what));
  if (!std::in_range<std::int32_t>(*value))
    return refuse_event(fmt::format("{}: expected a number below 2^31, got {}", what, *value));
  into = static_cast<std::int32_t>(*value);
  return true;
}

/// Kineto writes a GPU's activities with the device as process and the stream as thread.
std::optional<std::int64_t> Reader::device() const {
  if (event_.device) return event_.device;
  return event_.in_device ? event_.in_device : event_.process;
}

bool Reader::room_for(std::size_t count) {
  if (std::cmp_less(count, settings_.most_activities)) return true;
  return refuse_event(fmt::format("more than {} of a kind are not read; trace fewer steps",
                                  settings_.most_activities));
}

bool Reader::finish_event() {
  if (event_.phase != "X") return true;  // instants, flows, counters and names of tracks
  const std::string& category = event_.category;
  if (category == "kernel") return take_activity(WorkKind::kernel);
  if (category == "gpu_memcpy") return take_activity(WorkKind::copy);
  if (category == "gpu_memset") return take_activity(WorkKind::fill);
  if (category == "cuda_runtime" || category == "cuda_driver") return take_host_call();
  if (category == "cuda_sync") return take_sync();
  if (event_.name.starts_with(kStep)) {
    if (category == "user_annotation") return take_step(false);
    if (category == "gpu_user_annotation") return take_step(true);
  }
  return true;
}

bool Reader::take_activity(WorkKind kind) {
  for (const Field field : {Field::device, Field::in_device, Field::stream, Field::correlation,
                            Field::in_elements, Field::out_elements, Field::group_size})
    if (event_.is_wrong(field))
      return refuse_event(fmt::format("{}: expected a whole number", key_of(field)));
  GpuWork work;
  if (!needs_span() || !number_in_range(device(), "device", work.device) ||
      !number_in_range(event_.stream ? event_.stream : event_.thread, "stream", work.stream))
    return false;
  work.begin = *event_.begin;
  work.end = work.begin + *event_.duration;
  work.kind = kind;
  work.name = names_.number_of(event_.name);
  if (names_.bytes() > settings_.most_name_bytes)
    return refuse_event("too many different names of kernels");
  if (kind == WorkKind::kernel && is_nccl_kernel(event_.name)) return take_collective(work);
  if (!room_for(trace_.work.size())) return false;
  trace_.work.push_back(work);
  return true;
}

bool Reader::take_collective(const GpuWork& work) {
  for (const auto& [field, number] : {std::pair(Field::in_elements, event_.in_elements),
                                      std::pair(Field::out_elements, event_.out_elements),
                                      std::pair(Field::group_size, event_.group_size)})
    if (number && *number < 0)
      return refuse_event(fmt::format("{}: expected at least 0, got {}", key_of(field), *number));
  if (!room_for(trace_.collectives.size())) return false;
  trace_.collectives.push_back({.begin = work.begin,
                                .end = work.end,
                                .launched = std::nullopt,
                                .correlation = event_.correlation.value_or(0),
                                .device = work.device,
                                .stream = work.stream,
                                .name = work.name,
                                .group = names_.number_of(event_.group),
                                .dtype = names_.number_of(event_.dtype),
                                .op = collective_op(event_.name, event_.collective),
                                .in_elements = event_.in_elements.value_or(0),
                                .out_elements = event_.out_elements.value_or(0),
                                .group_size = event_.group_size.value_or(0)});
  return true;
}

bool Reader::take_host_call() {
  const std::string& name = event_.name;
  if (name.starts_with("cudaEventRecord")) ++trace_.event_records;
  if (name.starts_with("cudaStreamWaitEvent")) ++trace_.stream_waits;
  if (name.starts_with("cudaGraphLaunch")) ++trace_.graph_launches;
  if (name.find("Launch") == std::string::npos || !event_.correlation) return true;
  if (!needs_span() || !room_for(launches_.size())) return false;
  launches_.push_back({*event_.correlation, *event_.begin});
  return true;
}

bool Reader::take_step(bool on_device) {
  StepMark mark;
  if (!needs_span()) return false;
  const std::string_view digits = std::string_view(event_.name).substr(kStep.size());
  if (digits.empty() || digits.size() > 18 ||
      digits.find_first_not_of("0123456789") != std::string_view::npos)
    return refuse_event("expected a step's number after ProfilerStep#");
  for (const char c : digits) mark.step = mark.step * 10 + (c - '0');
  mark.begin = *event_.begin;
  mark.end = mark.begin + *event_.duration;
  if (on_device) {
    std::int32_t number = 0;
    if (!number_in_range(device(), "device", number)) return false;
    mark.device = number;
  }
  if (!room_for(trace_.steps.size())) return false;
  trace_.steps.push_back(mark);
  return true;
}

bool Reader::take_sync() {
  SyncMark mark;
  if (!needs_span() || !number_in_range(device(), "device", mark.device)) return false;
  mark.begin = *event_.begin;
  mark.stream = event_.stream ? *event_.stream : event_.thread.value_or(-1);
  mark.waits_on_stream = event_.wait_on_stream;
  if (!room_for(trace_.syncs.size())) return false;
  trace_.syncs.push_back(mark);
  return true;
}

Trace Reader::take() {
  std::ranges::sort(launches_, {}, &Launch::correlation);
  for (CollectiveCall& call : trace_.collectives) {
    const auto found =
        std::ranges::lower_bound(launches_, call.correlation, {}, &Launch::correlation);
    if (call.correlation != 0 && found != launches_.end() && found->correlation == call.correlation)
      call.launched = found->begin;
  }
  trace_.names = names_.take();
  trace_.bytes = static_cast<std::int64_t>(source_.position());
  return std::move(trace_);
}

Result<Trace> read(TraceSource& source, const std::string& where, const KinetoSettings& settings) {
  Reader reader(source, settings);
  std::istream characters(&source);
  const bool good = nlohmann::json::sax_parse(characters, &reader);
  // What broke beneath the parser explains what the parser then found missing.
  if (source.error()) return tl::unexpected<Error>(*source.error());
  if (!good) return fail(where, reader.complaint());
  if (!reader.found_events()) return fail(where, "expected a trace: there are no traceEvents");
  Trace trace = reader.take();
  trace.where = where;
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
