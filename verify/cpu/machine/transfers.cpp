#include "verify/cpu/machine/transfers.hpp"

#include <fmt/format.h>

#include <cstring>
#include <set>
#include <utility>

namespace mfsdp {
namespace {

const Collective& collective_in(const RankTransfer& transfer) {
  return std::get<Collective>(transfer.op->op->body);
}

bool sends(const RankTransfer& transfer) {
  return collective_in(transfer).kind == CollectiveKind::send;
}

std::string describe(const RankTransfer& transfer) {
  const Collective& collective = collective_in(transfer);
  return fmt::format("rank {} at {} {} {} {}", transfer.rank, transfer.op->op->name,
                     sends(transfer) ? "sends" : "receives", collective.count,
                     to_string(collective.dtype));
}

}  // namespace

Transfers::Transfers(RunState& run, std::string name) : run_(run), name_(std::move(name)) {
  run.add(gate_);
}

Result<void> Transfers::begin(RankTransfer& transfer) {
  const std::int64_t peer = transfer.op->peer;
  const Key key = sends(transfer) ? Key{transfer.rank, peer, transfer.number}
                                  : Key{peer, transfer.rank, transfer.number};
  const std::scoped_lock lock(gate_.mutex);
  if (run_.failed()) return {};  // the peer's part may be gone
  transfer.times.begin = std::chrono::steady_clock::now();
  const auto [place, is_first] = open_.emplace(key, &transfer);
  if (is_first) return {};
  RankTransfer& other = *place->second;
  const Collective& a = collective_in(transfer);
  const Collective& b = collective_in(other);
  if (a.kind == b.kind || a.count != b.count || a.dtype != b.dtype)
    return fail("",
                fmt::format("transfers differ on communicator {}: {}, but {}", name_,
                            describe(transfer), describe(other)),
                Fault::environment);
  const RankTransfer& from = sends(transfer) ? transfer : other;
  const RankTransfer& to = sends(transfer) ? other : transfer;
  std::memmove(to.op->operands[0].data, from.op->operands[0].data,
               static_cast<std::size_t>(bytes_of(a.count, a.dtype).value));
  open_.erase(place);
  transfer.times.end = other.times.end = std::chrono::steady_clock::now();
  transfer.ended = other.ended = true;
  gate_.changed.notify_all();
  return {};
}

void Transfers::await(const RankTransfer& transfer) {
  std::unique_lock lock(gate_.mutex);
  if (run_.await(gate_, lock, [&] { return transfer.ended; })) return;
  std::erase_if(open_, [&](const auto& entry) { return entry.second == &transfer; });
}

std::vector<std::int64_t> Transfers::missing(std::int64_t rank) {
  const std::scoped_lock lock(gate_.mutex);
  std::set<std::int64_t> peers;
  for (const auto& [key, transfer] : open_)
    if (transfer->rank == rank) peers.insert(transfer->op->peer);
  return {peers.begin(), peers.end()};
}

}  // namespace mfsdp
