#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <optional>
#include <system_error>

#include "core/base/file_kind.hpp"
#include "core/base/read_file.hpp"
#include "core/formats/torch_archive.hpp"
#include "gpu_backend/checkpoint/disk.hpp"
#include "gpu_backend/convert/data_file.hpp"
#include "gpu_backend/convert/readers.hpp"
#include "gpu_backend/weights/hf_folder.hpp"

namespace mfsdp {
namespace {

namespace fs = std::filesystem;

std::optional<std::int64_t> number_at_end(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  std::int64_t number = 0;
  const auto [stop, code] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (code != std::errc() || stop != name.data() + name.size() || number < 0) return std::nullopt;
  return number;
}

bool has_extension(const fs::path& folder, std::string_view extension) {
  std::error_code ignored;
  return std::ranges::any_of(fs::directory_iterator(folder, ignored), [&](const auto& entry) {
    return entry.path().extension() == extension;
  });
}

/// The newest checkpoint in a folder of them: that of Megatron's tracker, else of the highest step
/// that is complete ("step-100", "iter_0000100").
Result<std::optional<fs::path>> newest_in(const fs::path& folder) {
  std::error_code ignored;
  const fs::path tracker = folder / "latest_checkpointed_iteration.txt";
  if (fs::exists(tracker, ignored)) {
    constexpr std::size_t kMost = 64;
    MFSDP_LET(text, read_file(tracker, "the number of an iteration", kMost));
    while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
    if (text == "release") return folder / "release";
    const auto step = number_at_end(text, "");
    if (!step) return fail(tracker.string(), "expected the number of an iteration, or release");
    fs::path newest = folder / fmt::format("iter_{:07}", *step);
    if (!fs::is_directory(newest, ignored))
      return fail(tracker.string(),
                  fmt::format("names {}, which is not there", newest.filename().string()));
    return newest;
  }
  std::optional<fs::path> newest;
  std::int64_t highest = -1;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    for (const std::string_view prefix : {"step-", "iter_", "step_", "checkpoint-"}) {
      const auto step = number_at_end(name, prefix);
      const bool is_complete = fs::exists(entry.path() / ".metadata", ignored) ||
                               fs::exists(entry.path() / kHfIndex, ignored) ||
                               fs::exists(entry.path() / kHfSingleFile, ignored);
      if (step && is_complete && *step > highest) {
        highest = *step;
        newest = entry.path();
      }
    }
  }
  return newest;
}

Result<void> read_folder(Checkpoint& read);

Result<void> read_newest(Checkpoint& read) {
  MFSDP_LET(newest, newest_in(read.path));
  if (!newest) {
    if (has_extension(read.path, ".distcp"))
      return fail(read.path.string(),
                  "has files of a distributed checkpoint and no .metadata, which is written last: "
                  "the save is partial");
    return fail(read.path.string(),
                "expected a checkpoint: safetensors, .metadata with its files, "
                "or a save of mfsdp-exec; found none");
  }
  read.path = *newest;
  return read_folder(read);
}

// NOLINTNEXTLINE(misc-no-recursion): a folder of folders, once
Result<void> read_folder(Checkpoint& read) {
  std::error_code ignored;
  if (fs::exists(read.path / ".metadata", ignored)) return read_dcp(read);
  if (fs::exists(read.path / kManifestName, ignored) || holds_saves(read.path)) {
    read.format = CheckpointFormat::mfsdp;
    return read_mfsdp(read);
  }
  if (fs::exists(read.path / kHfSingleFile, ignored) || fs::exists(read.path / kHfIndex, ignored) ||
      has_extension(read.path, ".safetensors"))
    return read_safetensors_folder(read);
  return read_newest(read);
}

Result<void> read_one_file(Checkpoint& read) {
  MFSDP_LET(file, DataFile::open(read.path));
  std::array<std::byte, 512> first{};
  const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(first.size(), file.size()));
  MFSDP_TRY(file.read(0, std::span(first).first(size)));
  const std::string_view text(reinterpret_cast<const char*>(first.data()), size);
  if (text.starts_with("PK\3\4")) {
    read.format = CheckpointFormat::torch;
    return read_torch_file(read);
  }
  const auto kind = file_kind(text);
  if (kind == FileKind::safetensors) return read_safetensors_files({read.path}, read);
  if (auto other = not_the_file_itself(text)) return fail(read.path.string(), std::move(*other));
  return fail(read.path.string(),
              fmt::format("expected safetensors or an archive of torch.save, got {}",
                          kind ? to_words(*kind) : "another file"));
}

bool is_counter(std::string_view name) {
  return name == "iteration" || name == "train_state.step" || name == "step" ||
         name == "global_step";
}

/// The step of a checkpoint that does not state it in one place: a counter, the optimizer's, or the
/// folder's name.
Result<void> find_step(Checkpoint& read) {
  if (read.step) return {};
  for (const auto& [name, value] : read.facts)
    if (is_counter(name)) read.step = number_at_end(value, "");
  TensorReader reader(read);
  for (const CheckpointTensor& tensor : read.tensors) {
    const bool is_step = is_counter(tensor.name) || tensor.name.ends_with(".step");
    if (read.step || !is_step || tensor.elements() != 1 || tensor.boxes.empty()) continue;
    std::array<std::byte, 8> bytes{};
    const auto size = static_cast<std::size_t>(tensor.bytes());
    MFSDP_TRY(reader.read(tensor, 0, std::span(bytes).first(size)));
    if (tensor.type->torch == "float32") {
      const auto value = std::bit_cast<float>(little_endian<std::uint32_t>(bytes, 0));
      if (value >= 0 && value < 1e15F) read.step = static_cast<std::int64_t>(value);
    } else if (tensor.type->torch == "int64" || tensor.type->torch == "int32") {
      read.step = little_endian<std::int64_t>(bytes, 0);
    }
  }
  const std::string name = read.path.filename().string();
  for (const std::string_view prefix : {"step-", "iter_", "step_"})
    if (!read.step) read.step = number_at_end(name, prefix);
  return {};
}

}  // namespace

Result<Checkpoint> open_checkpoint(const fs::path& path) try {
  Checkpoint read;
  read.path = path;
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return fail(path.string(), "does not exist");
  MFSDP_TRY(fs::is_directory(path, ignored) ? read_folder(read) : read_one_file(read));
  std::ranges::sort(read.tensors, {}, &CheckpointTensor::name);
  std::ranges::sort(read.objects, {}, &CheckpointObject::name);
  MFSDP_TRY(find_step(read));
  return read;
} catch (const OverflowError& error) {
  return fail(path.string(), error.what());
}

}  // namespace mfsdp
