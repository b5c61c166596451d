#include "gpu_backend/checkpoint/saved_state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "core/base/read_file.hpp"
#include "core/runtime/scalar.hpp"
#include "core/shard/groups.hpp"
#include "gpu_backend/train/held_values.hpp"

namespace mfsdp {
namespace {

constexpr std::size_t kMostManifest = std::size_t{256} << 20;  ///< bytes

std::string elements_text(std::int64_t begin, std::int64_t end) {
  return fmt::format("elements {} to {}", begin, end - 1);
}

/// Converts values from one dtype to another; each is rounded once.
std::vector<std::byte> converted(std::span<const std::byte> bytes, DType from, DType to) {
  std::vector<std::byte> result;
  with_floating(from, [&]<class From>(From) {
    with_floating(to, [&]<class To>(To) {
      const std::size_t count = bytes.size() / sizeof(From);
      result.resize(count * sizeof(To));
      for (std::size_t i = 0; i < count; ++i) {
        From value;
        std::memcpy(&value, bytes.data() + i * sizeof(From), sizeof(From));
        const To rounded = narrow<To>(static_cast<Real<To>>(widen(value)));
        std::memcpy(result.data() + i * sizeof(To), &rounded, sizeof(To));
      }
    });
  });
  return result;
}

/// `bytes`: of `elements`, `size` bytes each; returns those of a part of them.
std::span<const std::byte> bytes_of_part(std::span<const std::byte> bytes, const Interval& elements,
                                         const Interval& part, std::int64_t size) {
  return bytes.subspan(static_cast<std::size_t>((part.begin - elements.begin) * size),
                       static_cast<std::size_t>(part.size() * size));
}

/// Uploads the elements in `elements` that the rank holds.
Result<void> upload_held(Backend& backend, const HeldElements& held, const Interval& elements,
                         std::span<const std::byte> bytes) {
  const Interval part = common_part(elements, held.elements);
  if (part.empty()) return {};
  return upload_elements(backend, held, part,
                         bytes_of_part(bytes, elements, part, size_of(held.dtype)));
}

/// Moves elements from the order in which they are saved to that in which the rank holds them, and
/// uploads those that it holds. Those that follow each other in its order are one copy: a rank with
/// part of each row then needs one, not one for each row.
Result<void> upload_moved(Backend& backend, const HeldElements& held, const ElementOrder& saved,
                          const ElementOrder& own, const Interval& elements,
                          std::span<const std::byte> bytes) {
  Result<void> outcome;
  Interval run;
  std::vector<std::byte> gathered;  // of `run`
  const auto flush = [&] {
    if (outcome) outcome = upload_held(backend, held, run, gathered);
    gathered.clear();
  };
  saved.in_parameter(elements, [&](std::int64_t begin, std::int64_t place, std::int64_t count) {
    own.from_parameter(
        {.begin = place, .end = place + count},
        [&](std::int64_t from, std::int64_t to, std::int64_t several) {
          const Interval part = common_part({.begin = to, .end = to + several}, held.elements);
          if (part.empty()) return;
          if (part.begin != run.end) {
            flush();
            run = {.begin = part.begin, .end = part.begin};
          }
          const std::int64_t at = begin + from - place + part.begin - to;  // in the save's order
          const auto added = bytes_of_part(bytes, elements, {.begin = at, .end = at + part.size()},
                                           size_of(held.dtype));
          gathered.insert(gathered.end(), added.begin(), added.end());
          run.end = part.end;
        });
  });
  flush();
  return outcome;
}

}  // namespace

std::vector<ExpectedState> expected_state(const Program& program) {
  const PlanConfig& config = program.config;
  std::vector<ExpectedState> all;
  for (const Group& group : program.groups) {
    std::vector<KeptState> kept;
    if (group.optimizer) kept = config.kept_states(*group.optimizer);
    for (const PlacedParameter& part : group.parameters) {
      const PlacedParameter parameter = whole_parameter(part, group, config.mesh);
      const auto add = [&](std::string_view kind, DType dtype, std::int64_t block = 1) {
        all.push_back({.parameter = parameter.name,
                       .kind = std::string(kind),
                       .dtype = dtype,
                       .elements = ceil_div(parameter.elements(), block)});
      };
      add(kSavedWeight, group.requires_grad ? config.main_dtype : group.dtype);
      for (const KeptState& state : kept) add(state.saved, state.dtype, state.block);
    }
  }
  return all;
}

/// Never resumes from an older save unasked: that would silently repeat steps.
tl::unexpected<Error> SavedState::with_save_before(Error error,
                                                   const std::filesystem::path& folder) {
  for (const std::filesystem::path& before : saves_before(folder))
    if (open_save(before)) {
      error.what += "; the save before it can be read: --resume " + before.string();
      break;
    }
  return tl::unexpected<Error>(std::move(error));
}

Result<SavedState> SavedState::open(const std::filesystem::path& path) {
  MFSDP_LET(folder, find_save(path));
  auto state = open_save(folder);
  if (!state) return with_save_before(std::move(state.error()), folder);
  return state;
}

Result<SavedState> SavedState::open_save(const std::filesystem::path& folder) {
  const std::filesystem::path manifest_path = folder / kManifestName;
  MFSDP_LET(text, read_file(manifest_path, "the manifest of a save", kMostManifest));
  MFSDP_LET(manifest, manifest_from_json(text, manifest_path.string()));
  SavedState state(std::move(manifest), folder);
  for (const SavedFile& expected : state.manifest_.files) {
    MFSDP_LET(file, read_state_file(folder, expected));
    if (file.header.step != state.manifest_.position.step)
      return fail(file.path.string(), fmt::format("expected step {}, as in the manifest, got {}",
                                                  state.manifest_.position.step, file.header.step));
    state.files_.push_back(std::move(file));
  }
  for (const StateFile& file : state.files_)
    for (const StateEntry& entry : file.header.entries)
      state.parts_[{entry.parameter, entry.kind}].push_back({.file = &file, .entry = &entry});
  for (auto& [key, parts] : state.parts_)
    std::ranges::stable_sort(parts, {},
                             [](const Part& part) { return part.entry->elements.begin; });
  return state;
}

Result<void> SavedState::check(const std::vector<ExpectedState>& expected) const {
  std::set<Key> known;
  for (const ExpectedState& state : expected) {
    known.insert({state.parameter, state.kind});
    MFSDP_TRY(check_parts(state));
  }
  for (const auto& [key, parts] : parts_)
    if (!known.contains(key))
      return fail(
          fmt::format("{}: {}, {}", parts.front().file->path.string(), key.first, key.second),
          "this run has no such state");
  return {};
}

Result<void> SavedState::check_parts(const ExpectedState& expected) const {
  const std::string what = fmt::format("{}, {}", expected.parameter, expected.kind);
  const auto missing = [&](std::int64_t begin, std::int64_t end) {
    return fail(fmt::format("{}: {}", folder_.string(), what),
                fmt::format("{} are in no file", elements_text(begin, end)));
  };
  std::int64_t end = 0;  // elements of the entries so far
  const Part* last = nullptr;
  const auto found = parts_.find({expected.parameter, expected.kind});
  if (found == parts_.end()) return missing(0, expected.elements);
  for (const Part& part : found->second) {
    const Interval& elements = part.entry->elements;
    const std::string where = fmt::format("{}: {}", part.file->path.string(), what);
    if (part.entry->dtype != expected.dtype)
      return fail(where, fmt::format("expected {}, got {}", to_string(expected.dtype),
                                     to_string(part.entry->dtype)));
    if (elements.end > expected.elements)
      return fail(where, fmt::format("expected {} elements, got {}", expected.elements,
                                     elements_text(elements.begin, elements.end)));
    if (elements.begin > end) return missing(end, elements.begin);
    if (elements.begin < end)
      return fail(where, fmt::format("{} are in {} too",
                                     elements_text(elements.begin, std::min(end, elements.end)),
                                     last->file->path.filename().string()));
    end = elements.end;
    last = &part;
  }
  if (end < expected.elements) return missing(end, expected.elements);
  return {};
}

Result<void> SavedState::visit(const std::string& parameter, std::string_view kind,
                               const Interval& wanted, const VisitElements& visit) const {
  const auto found = parts_.find({parameter, std::string(kind)});
  if (found == parts_.end() || wanted.empty()) return {};
  const std::vector<Part>& parts = found->second;
  auto part = std::ranges::upper_bound(
      parts, wanted.begin, {}, [](const Part& candidate) { return candidate.entry->elements.end; });
  for (; part != parts.end() && part->entry->elements.begin < wanted.end; ++part) {
    const Interval shared = common_part(part->entry->elements, wanted);
    auto visited = visit_elements(*part->file, *part->entry, shared, visit);
    if (visited) continue;
    // An error of the machine does not mean that the save is damaged.
    if (visited.error().fault != Fault::input) return visited;
    return with_save_before(std::move(visited.error()), folder_);
  }
  return {};
}

/// The saving run's ranks of tp may have been others than this one's: then all elements of the
/// parameter are read, and each rank takes its own.
Result<void> SavedState::visit_held(const RestingRank& rank, const ParameterPlaces& places,
                                    std::string_view kind, const Interval& wanted,
                                    const UploadElements& upload) const {
  const PlanConfig& config = rank.program.config;
  const PlacedParameter& parameter = *places.parameter;
  const ElementOrder saved(parameter, config.model, manifest_.run.config.mesh.size(Axis::tp));
  const ElementOrder whole(parameter, config.model, 1);
  const ElementOrder& own = places.order == nullptr ? whole : *places.order;
  const bool moves = saved != own;
  if (wanted.empty()) return {};
  return visit(parameter.name, kind,
               moves ? Interval{.begin = 0, .end = parameter.elements()} : wanted,
               [&](const Interval& elements, std::span<const std::byte> bytes) {
                 return upload(
                     [&](const HeldElements& held, std::span<const std::byte> of) {
                       if (moves) return upload_moved(rank.backend, held, saved, own, elements, of);
                       return upload_held(rank.backend, held, elements, of);
                     },
                     bytes);
               });
}

Result<void> SavedState::fill_weights(const RestingRank& rank,
                                      const ParameterPlaces& places) const {
  const DType saved = places.own.dtype;
  return visit_held(rank, places, kSavedWeight, places.weight.elements,
                    [&](const UploadTo& to, std::span<const std::byte> bytes) -> Result<void> {
                      MFSDP_TRY(to(places.own, bytes));
                      if (places.weight.dtype == saved) return to(places.weight, bytes);
                      return to(places.weight, converted(bytes, saved, places.weight.dtype));
                    });
}

Result<void> SavedState::fill(const RestingRank& rank) const {
  for (const ParameterPlaces& places : rank.parameters) {
    MFSDP_TRY(fill_weights(rank, places));
    if (!places.group->optimizer) continue;
    const std::vector<KeptState> kept = rank.program.config.kept_states(*places.group->optimizer);
    for (std::size_t i = 0; i < places.states.size(); ++i) {
      const HeldElements& held = places.states[i];
      const auto filled = visit_held(
          rank, places, kept[i].saved, held.elements,
          [&](const UploadTo& to, std::span<const std::byte> bytes) { return to(held, bytes); });
      MFSDP_TRY(filled);
    }
  }
  return {};
}

}  // namespace mfsdp
