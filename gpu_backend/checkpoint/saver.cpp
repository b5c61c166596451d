#include "gpu_backend/checkpoint/saver.hpp"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "core/shard/groups.hpp"
#include "gpu_backend/checkpoint/state_file.hpp"
#include "gpu_backend/train/held_values.hpp"

namespace mfsdp {
namespace {

std::string file_name(std::int64_t rank) { return fmt::format("rank-{:05}.state", rank); }

/// Encodes a file's fields as doubles, exactly; empty for a rank without a file.
std::vector<double> to_numbers(const std::optional<SavedFile>& file) {
  if (!file) return {};
  const auto half = [](std::uint64_t value) {
    return static_cast<double>(static_cast<std::uint32_t>(value));
  };
  const auto bytes = static_cast<std::uint64_t>(file->bytes);
  return {half(bytes >> 32U), half(bytes), half(file->checksum >> 32U), half(file->checksum)};
}

std::vector<SavedFile> files_of(const std::vector<std::vector<double>>& by_rank) {
  std::vector<SavedFile> files;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    const std::vector<double>& numbers = by_rank[rank];
    if (numbers.empty()) continue;
    const auto whole = [&](std::size_t i) {
      return static_cast<std::uint64_t>(numbers.at(i)) << 32U |
             static_cast<std::uint64_t>(numbers.at(i + 1));
    };
    files.push_back({.name = file_name(static_cast<std::int64_t>(rank)),
                     .bytes = static_cast<std::int64_t>(whole(0)),
                     .checksum = whole(2)});
  }
  return files;
}

Result<void> write_manifest(const std::filesystem::path& folder, const Manifest& manifest,
                            const SaveProbe& probe) {
  MFSDP_LET(file, NewFile::create(folder / kManifestName, probe));
  const std::string text = to_json(manifest);
  MFSDP_TRY(file.write(0, std::as_bytes(std::span(text))));
  return file.close();
}

}  // namespace

RankShare share_of(const RestingRank& rank, std::int64_t step) {
  RankShare share{.header = {.step = step, .rank = rank.rank, .piece_elements = 0, .entries = {}}};
  const auto add = [&](const ParameterPlaces& places, std::string_view kind,
                       const HeldElements& held) {
    if (held.elements.empty()) return;
    share.header.entries.push_back({.parameter = places.parameter->name,
                                    .kind = std::string(kind),
                                    .dtype = held.dtype,
                                    .elements = held.elements,
                                    .offset = 0});
    share.held.push_back(&held);
  };
  for (const ParameterPlaces& places : rank.parameters) {
    if (!places.first_replica) continue;
    add(places, kSavedWeight, places.own);
    if (!places.group->optimizer) continue;
    const std::vector<KeptState> kept = rank.program.config.kept_states(*places.group->optimizer);
    for (std::size_t i = 0; i < places.states.size(); ++i)
      add(places, kept[i].saved, places.states[i]);
  }
  return share;
}

Result<std::optional<SavedFile>> Saver::write_share(const RestingRank& rank,
                                                    std::int64_t step) const {
  if (std::ranges::none_of(rank.parameters, &ParameterPlaces::first_replica)) return std::nullopt;
  RankShare share = share_of(rank, step);
  const auto fetch = [&](std::size_t entry, const Interval& elements, std::span<std::byte> bytes) {
    return download_elements(rank.backend, *share.held[entry], elements, bytes);
  };
  MFSDP_LET(file, write_state_file(partial_folder(settings_.folder, step) / file_name(rank.rank),
                                   std::move(share.header), fetch, settings_.probe));
  return file;
}

Result<void> Saver::complete(const SaveFolder& folder, const Manifest& manifest) const {
  const std::int64_t step = manifest.position.step;
  MFSDP_TRY(write_manifest(partial_folder(settings_.folder, step), manifest, settings_.probe));
  MFSDP_TRY(folder.finish(step));
  if (settings_.kept > 0) MFSDP_TRY(folder.prune(step, settings_.kept));
  return {};
}

Result<Bytes> Saver::keep(const RestingRank& rank, const TrainPosition& position,
                          HostGather& gather, const HostGather::Alive& alive) {
  std::optional<SaveFolder> folder;  // rank 0's
  if (rank.rank == 0) {
    MFSDP_LET(opened, SaveFolder::open(settings_.folder, settings_.probe));
    folder.emplace(std::move(opened));
    MFSDP_TRY(folder->begin(position.step));
  }
  MFSDP_TRY(gather.all_gather(rank.rank, {}, alive));
  MFSDP_LET(file, write_share(rank, position.step));
  MFSDP_LET(by_rank, gather.all_gather(rank.rank, to_numbers(file), alive));
  const std::vector<SavedFile> files = files_of(by_rank);
  if (folder)
    MFSDP_TRY(
        complete(*folder, {.position = position, .began = began_, .run = run_, .files = files}));
  // Other ranks that trained on would wait in their next collective and report rank 0 as stalled.
  MFSDP_TRY(gather.all_gather(rank.rank, {}, alive));
  Bytes written;
  for (const SavedFile& of_rank : files) written += Bytes(of_rank.bytes);
  return written;
}

void Saver::tidy() const {
  static_cast<void>(SaveFolder::open(settings_.folder, settings_.probe));  // removes leftovers
}

}  // namespace mfsdp
