#include "verify/proof/ranks/rank_pairs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>

namespace mfsdp::every_rank {
namespace {

/// Reports the first difference of two classes on each communicator.
class PairCheck {
 public:
  PairCheck(const Ranks& ranks, FindingList& findings) : ranks_(ranks), findings_(findings) {}

  /// Returns how many meetings it looked at.
  std::int64_t run(std::size_t k) {
    std::int64_t compared = 0;
    for (std::size_t rank = 0; rank < ranks_.class_of.size(); ++rank) {
      const Sequence& own = ranks_.sequence(rank, k);
      compared += std::ssize(own.meetings);
      if (!std::ranges::all_of(own.point_to_point, [](const auto* p) { return p != nullptr; }))
        report("MF201", k, rank, rank, {},
               fmt::format("rank {} issues other collectives than send and recv", rank));
      for (const auto& [channel, meetings] : own.channels) {
        const auto other = ranks_.peer(rank, channel.axis, channel.step);
        if (!other) {
          report("MF206", k, rank, rank, {ranks_.place(rank, k, meetings[0])},
                 fmt::format("rank {} sends to or receives from a rank {} steps along {}, which "
                             "does not exist",
                             rank, channel.step, to_string(channel.axis)));
          continue;
        }
        check_peer_class(k, rank, *other, channel, meetings[0]);
        compare_channel(k, rank, *other, channel, meetings);
      }
    }
    return compared;
  }

  /// Whether all sends and recvs have another end.
  [[nodiscard]] bool all_paired() const { return all_paired_; }

 private:
  /// All ranks of a class have peers of one class.
  void check_peer_class(std::size_t k, std::size_t rank, std::size_t other, const Channel& channel,
                        std::uint32_t meeting) {
    const auto [known, fresh] =
        peer_class_.try_emplace({k, ranks_.class_of[rank], channel}, ranks_.class_of[other]);
    if (known->second != ranks_.class_of[other])
      report("MF206", k, rank, other, {ranks_.place(rank, k, meeting)},
             fmt::format("ranks {} steps along {} from rank {} and from other ranks of its "
                         "class are of different classes",
                         channel.step, to_string(channel.axis), rank));
  }

  void compare_channel(std::size_t k, std::size_t rank, std::size_t other, const Channel& channel,
                       const std::vector<std::uint32_t>& meetings) {
    if (!compared_.emplace(k, ranks_.class_of[rank], ranks_.class_of[other], channel).second)
      return;
    const Sequence& theirs = ranks_.sequence(other, k);
    const auto found = theirs.channels.find(channel.other_end());
    static const std::vector<std::uint32_t> none;
    const std::vector<std::uint32_t>& ends = found == theirs.channels.end() ? none : found->second;
    const auto body = [&](std::size_t of, const std::vector<std::uint32_t>& list, std::size_t n) {
      return ranks_.sequence(of, k).point_to_point[list[n]];
    };
    all_paired_ = all_paired_ && meetings.size() == ends.size();
    for (std::size_t n = 0; n < std::max(meetings.size(), ends.size()); ++n) {
      std::vector<Place> places;
      const auto describe = [&](std::size_t of, const std::vector<std::uint32_t>& list) {
        if (n >= list.size()) return fmt::format("rank {} has no matching send or recv", of);
        places.push_back(ranks_.place(of, k, list[n]));
        const Collective& collective = *body(of, list, n);
        return fmt::format("rank {} issues {} (a {} of {} {})", of, to_text(places.back()),
                           to_string(collective.kind), collective.count,
                           to_string(collective.dtype));
      };
      if (n < meetings.size() && n < ends.size()) {
        const Collective& a = *body(rank, meetings, n);
        const Collective& b = *body(other, ends, n);
        if (a.count == b.count && a.dtype == b.dtype) continue;
      }
      const std::string left = describe(rank, meetings);
      const std::string right = describe(other, ends);
      return report("MF201", k, rank, other, std::move(places), left + ", " + right);
    }
  }

  void report(const char* rule, std::size_t k, std::size_t rank, std::size_t other,
              std::vector<Place> places, const std::string& what) {
    all_paired_ = all_paired_ && std::string_view(rule) != "MF206" && rank != other;
    const auto classes = std::minmax(ranks_.class_of[rank], ranks_.class_of[other]);
    if (!reported_.emplace(k, classes.first, classes.second).second) return;
    Finding finding;
    finding.rule = rule;
    finding.places = std::move(places);
    finding.message = fmt::format("on communicator {}, {}",
                                  ranks_.plans.front()->program->communicators[k].id.value, what);
    finding.interleaving = finding.places;
    findings_.add(std::move(finding));
  }

  const Ranks& ranks_;
  FindingList& findings_;
  std::set<std::tuple<std::size_t, std::uint32_t, std::uint32_t>> reported_;
  std::set<std::tuple<std::size_t, std::uint32_t, std::uint32_t, Channel>> compared_;
  std::map<std::tuple<std::size_t, std::uint32_t, Channel>, std::uint32_t> peer_class_;
  bool all_paired_ = true;
};

}  // namespace

PairsCompared compare_pairs(const Ranks& ranks, FindingList& findings) {
  PairCheck check(ranks, findings);
  std::int64_t compared = 0;
  for (std::size_t k = 0; k < ranks.pairs.size(); ++k)
    if (ranks.pairs[k] != 0) compared += check.run(k);
  return {.meetings = compared, .all_paired = check.all_paired()};
}

}  // namespace mfsdp::every_rank
