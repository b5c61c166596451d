#include "gpu_backend/weights/hf_export.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string>
#include <system_error>
#include <vector>

#include "core/base/durable_file.hpp"
#include "gpu_backend/train/held_values.hpp"

namespace mfsdp {
namespace {

namespace fs = std::filesystem;

/// "runs/model/" without its trailing slash, with links resolved. A folder beside the result is on
/// the same disk.
fs::path resolved(const fs::path& folder) {
  std::error_code error;
  fs::path path = fs::absolute(folder, error).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  const fs::path target = fs::weakly_canonical(path, error);
  return error ? path : target;
}

/// Whether the folder does not exist, is empty, or is an earlier export.
bool may_be_replaced(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::exists(fs::symlink_status(folder, ignored))) return true;
  return fs::is_directory(folder, ignored) &&
         (fs::is_empty(folder, ignored) || is_earlier_export(folder));
}

Result<void> check_target(const fs::path& target, const fs::path& shown) {
  std::error_code ignored;
  if (!target.has_filename()) return fail(shown.string(), "expected a folder that can be made");
  if (may_be_replaced(target)) return {};
  if (!fs::is_directory(target, ignored))
    return fail(shown.string(), "expected a folder or nothing at the export's place, found a file");
  return fail(shown.string(),
              "is neither empty nor an earlier export; name another folder to export to");
}

Result<void> check_room(const fs::path& target, const fs::path& shown, std::int64_t bytes) {
  MFSDP_LET(trial, TemporaryFolder::beside(target, shown));
  std::error_code error;
  const fs::space_info space = fs::space(trial.path(), error);
  if (error || space.available >= static_cast<std::uintmax_t>(bytes)) return {};
  return fail(
      shown.string(),
      fmt::format("the export takes {} bytes, its disk has {} left", bytes, space.available),
      Fault::environment);
}

/// Moves the new export into place, then removes the earlier one, if any. Both are exchanged at
/// once if the file system supports it, so that the name always exists.
Result<void> replace_folder(const fs::path& made, const fs::path& target, const fs::path& shown) {
  std::error_code ignored;
  if (::renameat2(AT_FDCWD, made.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) {
    fs::remove_all(made, ignored);
    return {};
  }
  const fs::path old = made.string() + ".old";
  const bool replaces = std::rename(target.c_str(), old.c_str()) == 0;
  if (!replaces && errno != ENOENT) return cannot_write(shown.string(), errno);
  if (std::rename(made.c_str(), target.c_str()) != 0) {
    const int error = errno;
    if (replaces) static_cast<void>(std::rename(old.c_str(), target.c_str()));
    return cannot_write(shown.string(), error);
  }
  if (replaces) fs::remove_all(old, ignored);
  return {};
}

/// Elements of a matrix [inputs, outputs], `bytes` in the order of [outputs, inputs]: the outputs
/// of an input are contiguous. Calls put(offset, bytes) for each contiguous part.
Result<void> write_transposed(std::int64_t inputs, std::int64_t outputs, const Interval& elements,
                              std::span<const std::byte> bytes, std::int64_t size,
                              const auto& put) {
  // Number of outputs whose element of this input is before `end`.
  const auto outputs_before = [&](std::int64_t end, std::int64_t input) {
    return end <= input ? 0 : (end - input + inputs - 1) / inputs;
  };
  std::vector<std::byte> run;
  for (std::int64_t input = 0; input < inputs; ++input) {
    const std::int64_t first = outputs_before(elements.begin, input);
    const std::int64_t last = outputs_before(elements.end, input);
    if (first == last) continue;
    run.resize(static_cast<std::size_t>((last - first) * size));
    for (std::int64_t output = first; output < last; ++output)
      std::ranges::copy(
          bytes.subspan(static_cast<std::size_t>((output * inputs + input - elements.begin) * size),
                        static_cast<std::size_t>(size)),
          run.begin() + (output - first) * size);
    MFSDP_TRY(put((input * outputs + first) * size, std::span<const std::byte>(run)));
  }
  return {};
}

/// The same for a tensor of one such matrix, or of several consecutive ones.
Result<void> write_transposed(const HfTensor& tensor, const Interval& elements,
                              std::span<const std::byte> bytes, std::int64_t size,
                              const auto& put) {
  const std::int64_t inputs = tensor.shape.at(tensor.shape.size() - 2);
  const std::int64_t outputs = tensor.shape.back();
  const std::int64_t matrix = checked_mul(inputs, outputs);
  for (std::int64_t begin = elements.begin; begin < elements.end;) {
    const std::int64_t first = begin / matrix * matrix;
    const std::int64_t end = std::min(elements.end, first + matrix);
    const auto count = static_cast<std::size_t>((end - begin) * size);
    MFSDP_TRY(write_transposed(inputs, outputs, {.begin = begin - first, .end = end - first},
                               bytes.first(count), size,
                               [&](std::int64_t offset, std::span<const std::byte> run) {
                                 return put(first * size + offset, run);
                               }));
    bytes = bytes.subspan(count);
    begin = end;
  }
  return {};
}

/// A name that a later export does not take for a leftover.
fs::path kept_beside(const fs::path& made, const fs::path& target) {
  fs::path kept = target.string() + ".kept" + made.extension().string();
  for (int i = 0; fs::exists(kept); ++i) kept = target.string() + fmt::format(".kept.{}", i);
  return std::rename(made.c_str(), kept.c_str()) == 0 ? kept : made;
}

}  // namespace

Result<HfExport> HfExport::prepare(const Program& program, const fs::path& folder,
                                   std::int64_t shard_bytes) {
  MFSDP_TRY(check_target(resolved(folder), folder));
  MFSDP_LET(tensors, HfTensors::of(program));
  MFSDP_LET(layout, lay_out_export(program, tensors, shard_bytes));
  MFSDP_LET(made, of(folder, {.tensors = std::move(tensors),
                              .layout = std::move(layout),
                              .dtype = program.config.param_dtype}));
  if (!program.config.has_lora()) return made;
  MFSDP_LET(adapters, HfTensors::of_adapters(program));
  ExportLayout merged = lay_out_merged(program, adapters);
  made.merged_ = Content{.tensors = std::move(adapters),
                         .layout = std::move(merged),
                         .dtype = program.config.main_dtype,
                         .updated = true};
  made.scale_ = program.config.lora_scale().value();
  return made;
}

Result<HfExport> HfExport::prepare_adapters(const Program& program, const fs::path& folder) {
  if (!program.config.has_lora())
    return fail(folder.string(), "the plan has no adapters to export: --lora-rank sets their rank");
  MFSDP_TRY(check_target(resolved(folder), folder));
  MFSDP_LET(tensors, HfTensors::of_adapters(program));
  MFSDP_LET(layout, lay_out_adapters(program, tensors));
  return of(folder, {.tensors = std::move(tensors),
                     .layout = std::move(layout),
                     .dtype = program.config.main_dtype,
                     .updated = true});
}

Result<HfExport> HfExport::of(const fs::path& folder, Content content) {
  const fs::path target = resolved(folder);
  std::error_code error;
  fs::create_directories(target.parent_path(), error);
  if (error) return fail(folder.string(), "cannot be made: " + error.message(), Fault::environment);
  ExportLeftovers leftovers = remove_export_leftovers(target);  // they may occupy the space
  MFSDP_TRY(check_room(target, folder, content.layout.bytes()));
  HfExport made(folder, target, std::move(content));
  made.leftovers_ = std::move(leftovers);
  return made;
}

Result<void> HfExport::write(std::int64_t rank, Backend& backend,
                             std::span<const ParameterPlaces> parameters,
                             HostGather& gather) const {
  const auto alive = [&] { return backend.synchronise(); };
  std::optional<TemporaryFolder> made;  // on rank 0
  std::vector<double> name;
  if (rank == 0) {
    MFSDP_LET(temporary, TemporaryFolder::beside(target_, folder_));
    made.emplace(std::move(temporary));
    MFSDP_TRY(make_files(made->path(), content_.layout));
    if (merged_) MFSDP_TRY(make_files(made->path(), merged_->layout));
    name = {static_cast<double>(::getpid()), static_cast<double>(made->number())};
  }
  MFSDP_LET(names, gather.all_gather(rank, std::move(name), alive));
  const fs::path into = TemporaryFolder::name(target_, static_cast<std::int64_t>(names.at(0).at(0)),
                                              static_cast<std::int64_t>(names.at(0).at(1)));
  const auto write_all = [&](const Content& content, MergedAdapters* merged) -> Result<void> {
    const auto written = write_own(content, into, backend, parameters, merged);
    if (!written)
      MFSDP_TRY(alive());  // after another rank's failure the files are gone: report that failure
    MFSDP_TRY(written);
    MFSDP_TRY(gather.all_gather(rank, {}, alive));  // all have written
    return {};
  };
  std::optional<MergedAdapters> merged;
  if (merged_) {
    MFSDP_TRY(write_all(*merged_, nullptr));
    MFSDP_LET(opened, MergedAdapters::open(into / kMergedAdapters, scale_));
    merged.emplace(std::move(opened));
  }
  MFSDP_TRY(write_all(content_, merged ? &*merged : nullptr));
  if (rank != 0) return {};
  if (merged_) {
    std::error_code error;
    fs::remove(into / kMergedAdapters, error);
    if (error) return cannot_write((folder_ / kMergedAdapters).string(), error.value());
  }
  MFSDP_TRY(sync_folder(into));
  made->keep();
  return put_in_place(into);
}

Result<void> HfExport::make_files(const fs::path& into, const ExportLayout& layout) const {
  for (const ExportFile& file : layout.files) {
    MFSDP_LET(made, DurableFile::create(into / file.name, (folder_ / file.name).string()));
    MFSDP_TRY(made.reserve(file.size));
    MFSDP_TRY(made.write(0, std::as_bytes(std::span(file.beginning))));
    MFSDP_TRY(made.close());
  }
  return {};
}

namespace {

/// Reads elements that a rank holds, as numbers.
Result<std::vector<double>> read_values(Backend& backend, const HeldElements& held,
                                        const Interval& piece) {
  HeldElements part = held;
  part.elements = piece;
  part.data = held.data + (piece.begin - held.elements.begin) * size_of(held.dtype);
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(piece.size()));
  MFSDP_TRY(
      for_each_value(backend, part, [&](std::int64_t, double value) { values.push_back(value); }));
  return values;
}

}  // namespace

Result<void> HfExport::write_own(const Content& content, const fs::path& into, Backend& backend,
                                 std::span<const ParameterPlaces> parameters,
                                 MergedAdapters* merged) const {
  // One open file at a time: large models have more files than a process may open.
  std::optional<DurableFile> file;
  std::size_t opened = 0;
  const auto write = [&](const ExportPlace& place, std::int64_t offset,
                         std::span<const std::byte> bytes) -> Result<void> {
    if (!file || opened != place.file) {
      if (file) MFSDP_TRY(file->close());
      const std::string& name = content.layout.files[place.file].name;
      MFSDP_SET(file, DurableFile::open(into / name, (folder_ / name).string()));
      opened = place.file;
    }
    return file->write(place.offset + offset, bytes);
  };

  const std::int64_t size = size_of(content.dtype);
  // Adapters are added as numbers, and those of another dtype are rounded. Other weights are copied
  // unchanged.
  const auto read = [&](const HeldElements& held, const PlacedParameter& parameter,
                        const Interval& piece) -> Result<std::vector<std::byte>> {
    if (merged == nullptr && held.dtype == content.dtype) {
      std::vector<std::byte> bytes(static_cast<std::size_t>(piece.size() * size));
      MFSDP_TRY(download_elements(backend, held, piece, bytes));
      return bytes;
    }
    MFSDP_LET(values, read_values(backend, held, piece));
    std::span<double> rest = values;
    for (const HfPart& part : content.tensors.parts(parameter, piece)) {
      const HfTensor& tensor = content.tensors.all()[part.tensor];
      const auto count = static_cast<std::size_t>(part.elements.size());
      if (merged != nullptr)
        merged->add(tensor.name, tensor.shape.back(), part.elements, rest.first(count));
      rest = rest.subspan(count);
    }
    return rounded(values, content.dtype);
  };
  const auto write_piece = [&](const ParameterPlaces& places,
                               const Interval& piece) -> Result<void> {
    MFSDP_LET(held, read(content.updated ? places.own : places.weight, *places.parameter, piece));
    std::span<const std::byte> rest = held;
    for (const HfPart& part : content.tensors.parts(*places.parameter, piece)) {
      const auto bytes = static_cast<std::size_t>(part.elements.size() * size);
      const ExportPlace& place = content.layout.places[part.tensor];
      const auto put = [&](std::int64_t offset, std::span<const std::byte> of) {
        return write(place, offset, of);
      };
      const HfTensor& tensor = content.tensors.all()[part.tensor];
      if (tensor.transposed)
        MFSDP_TRY(write_transposed(tensor, part.elements, rest.first(bytes), size, put));
      else
        MFSDP_TRY(put(part.elements.begin * size, rest.first(bytes)));
      rest = rest.subspan(bytes);
    }
    return {};
  };
  for (const ParameterPlaces& places : parameters) {
    if (!places.first_replica || places.own.elements.empty()) continue;
    if (content.tensors.parts(*places.parameter, places.own.elements).empty()) continue;
    if (!content.updated && !places.group->fp8 && places.weight.dtype != content.dtype)
      return fail("plan, parameter " + places.parameter->name,
                  fmt::format("expected weights of {}, as --param-dtype sets, got {}",
                              to_string(content.dtype), to_string(places.weight.dtype)));
    const auto written = for_each_piece(
        places.own.elements, [&](const Interval& piece) { return write_piece(places, piece); });
    MFSDP_TRY(written);
  }
  return file ? file->close() : Result<void>();
}

Result<void> HfExport::put_in_place(const fs::path& made) const {
  auto outcome = may_be_replaced(target_)
                     ? replace_folder(made, target_, folder_)
                     : Result<void>(fail(folder_.string(), "has come to hold other files",
                                         Fault::environment));
  if (!outcome) {
    outcome.error().what += "; the export is in " + kept_beside(made, target_).string();
    return outcome;
  }
  return sync_folder(target_.parent_path());
}

}  // namespace mfsdp
